package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// caller is who asks, as the key says it.
type caller struct {
	key    client.Key
	bearer string
	// job reads the job that the request is for; nil where its route does not begin with that.
	job func(context.Context) (client.Job, error)
	// request is the request's own context, without a limit of time.
	request context.Context
}

type callerInContext struct{}

func keyOf(ctx context.Context) client.Key {
	who, _ := ctx.Value(callerInContext{}).(caller)
	return who.key
}

// bearerOf returns the credential that came with the request, "" for none.
func bearerOf(r *http.Request) string {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authenticate lets a request through whose key is valid at this moment, has the route's scope, and has not had its share.
// It comes before anything of the request is looked at, so that nothing is answered again to whom it is not for.
func (d *Door) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	who := caller{bearer: bearerOf(r), request: ctx.Context()}
	// A caller is told in time that no answer could be had, and may then ask again.
	bounded, cancel := context.WithTimeout(ctx.Context(), answerWithin)
	defer cancel()
	if err := d.identify(bounded, ctx, &who); err != nil {
		refuse(w, r, err)
		return
	}
	note(r.Context(), who.key)
	leave, err := d.usage.enter(who.key, d.limits)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer leave()
	needed, _ := ctx.Operation().Metadata[scopeOf].(contract.Scope)
	if !who.key.Allows(needed) {
		refuse(w, r, contract.NewError(contract.CodeForbidden, contract.RetryNever,
			fmt.Sprintf("the API key lacks the scope %q that this needs", needed), nil))
		return
	}
	next(huma.WithContext(ctx, context.WithValue(bounded, callerInContext{}, who)))
}

// identify finds out whose key it is, and reads the job along where the route is about one.
func (d *Door) identify(bounded context.Context, ctx huma.Context, who *caller) (err error) {
	if ctx.Operation().Metadata[readsJob] == true {
		who.key, who.job, err = d.client.AuthenticateForJob(bounded, who.bearer, ctx.Param("job"))
	} else {
		who.key, err = d.client.Authenticate(bounded, who.bearer)
	}
	return err
}

// jobAsked reads the job that the request is for, on a route that readsJob.
func jobAsked(ctx context.Context) (client.Job, error) {
	who, _ := ctx.Value(callerInContext{}).(caller)
	return who.job(ctx)
}

// withoutLimit is the context of a request that takes as long as it does: it ends only when its caller has gone away.
func withoutLimit(ctx context.Context) context.Context {
	who, _ := ctx.Value(callerInContext{}).(caller)
	if who.request == nil {
		return ctx
	}
	return context.WithValue(who.request, callerInContext{}, who)
}

// stillValid looks again whether the caller's key is: one that was revoked while its request waited gets nothing.
func (d *Door) stillValid(ctx context.Context) error {
	who, _ := ctx.Value(callerInContext{}).(caller)
	_, err := d.client.Authenticate(ctx, who.bearer)
	return err
}

// operatorBy names who decides: the person that the request names, and always the key's actor.
func operatorBy(key client.Key, named string) string {
	if strings.TrimSpace(named) == "" || named == key.Actor {
		return key.Actor
	}
	return fmt.Sprintf("%s (by the key of %s)", named, key.Actor)
}

// keyHeader names the header of an operation's key.
const keyHeader = "Idempotency-Key"

// idempotencyKey returns the operation key of a request that makes something.
func idempotencyKey(header string) (string, error) {
	if header == "" {
		return "", contract.BadField(keyHeader, "is missing: send a header with a key of your own for this operation, the same for "+
			"every repeat of it")
	}
	return header, contract.CheckText(keyHeader, header, 200)
}
