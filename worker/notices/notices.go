// Package notices is the door by which payment channels report to a worker: POST /v1/channels/{channel}/notices, with the
// channel's signature as the credential.
package notices

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	starter "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// maxBody bounds what is read of a notice at all; each channel has a smaller limit of its own.
const maxBody = 1 << 20

// Taker verifies and applies notices.
type Taker interface {
	TakeNotice(ctx context.Context, channel string, header http.Header, body []byte, now time.Time) (activities.TakenNotice, error)
}

// Teller tells a refund's run of what was applied. One that has ended is started again only where there is news.
type Teller func(ctx context.Context, key contract.RefundKey, notice contract.ChannelNotice, news bool) error

// TellRun tells the refund's run by signal. Where there is news and the run has ended, one is started on the task queue, so
// that its record shows what came late.
func TellRun(asker *starter.Client, temporal client.Client) Teller {
	return func(ctx context.Context, key contract.RefundKey, notice contract.ChannelNotice, news bool) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		id := contract.RefundWorkflowID(key.Tenant, key.RefundID)
		if !news {
			err := temporal.SignalWorkflow(ctx, id, "", contract.ChannelNoticeSignal, notice)
			if _, ended := errors.AsType[*serviceerror.NotFound](err); ended {
				return nil
			}
			return err
		}
		refund, err := asker.Refund(ctx, key.Tenant, key.RefundID)
		if err == nil {
			_, err = temporal.SignalWithStartWorkflow(ctx, id, contract.ChannelNoticeSignal, notice,
				asker.RefundStartOptions(refund), contract.ChannelRefundWorkflow, key)
		}
		return err
	}
}

// Handler takes notices. It answers 2xx only once everything that the message means is committed and told: 200 where it was applied
// or is about nothing of ours, 202 where an issue was opened; 4xx, with a problem as RFC 9457 has it, where it is not
// accepted; and 5xx where the channel should send it again.
func Handler(taker Taker, tell Teller, logger *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/channels/{channel}/notices", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("channel")
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				problem(w, http.StatusRequestEntityTooLarge, channel.NoticeTooLarge, "the notice is over 1 MiB")
				return
			}
			problem(w, http.StatusBadRequest, channel.NoticeMalformed, "the notice could not be read")
			return
		}
		taken, err := taker.TakeNotice(r.Context(), name, r.Header, body, time.Now())
		if refused, ok := errors.AsType[*channel.NoticeError](err); ok {
			status := http.StatusBadRequest
			if refused.Code == channel.NoticeTooLarge {
				status = http.StatusRequestEntityTooLarge
			}
			logger.Warn("a notice was not accepted", zap.String("channel", name), zap.String("code", refused.Code),
				zap.String("reason", refused.Reason))
			problem(w, status, refused.Code, refused.Reason)
			return
		}
		if errors.Is(err, channel.ErrUnknownChannel) {
			problem(w, http.StatusNotFound, "unknown_channel", "there is no channel of this name here")
			return
		}
		if err != nil {
			logger.Error("a notice could not be applied; the channel sends it again", zap.String("channel", name), zap.Error(err))
			problem(w, http.StatusServiceUnavailable, string(contract.CodeUnavailable), "send it again later")
			return
		}
		if taken.IssueID != "" {
			logger.Warn("a notice is about a refund that is not known here", zap.String("channel", name),
				zap.String("issue", taken.IssueID))
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if taken.Refund.RefundID != "" {
			// A repeated notice is told too: whoever took the first may have died before it told the run. One that has ended is
			// started again where a person must look, since its record is where that is seen.
			news := taken.Applied.Verdict != activities.Already || taken.Applied.NeedsReview
			if err := tell(r.Context(), taken.Refund, taken.Notice, news); final(err) {
				logger.Error("a refund cannot be told of its notice, which its row has", zap.String("refund", taken.Refund.RefundID),
					zap.Error(err))
			} else if err != nil {
				logger.Error("a refund could not be told of its notice; the channel sends it again",
					zap.String("refund", taken.Refund.RefundID), zap.Error(err))
				problem(w, http.StatusServiceUnavailable, string(contract.CodeUnavailable), "send it again later")
				return
			}
		}
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

// final says whether telling fails however often it is tried: a channel that sends again for days may stop sending at all.
func final(err error) bool {
	_, denied := errors.AsType[*serviceerror.PermissionDenied](err)
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	_, nowhere := errors.AsType[*serviceerror.NamespaceNotFound](err)
	return denied || invalid || nowhere
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// The sender has its status already; one that went away needs no body.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": status, "title": http.StatusText(status), "code": code, "detail": detail,
	})
}
