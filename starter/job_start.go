package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) jobStartCommand() *cobra.Command {
	var file string
	wait := choice{value: "charge", of: []string{"charge", "end"}}
	command := &cobra.Command{
		Use: "start -f job.json|-", Short: "Submit a job and tell whether it was charged",
		Long: "Submit a job and tell whether it was charged. Submitting the same job again is safe at any time. The file's " +
			"tenant and actor may be left out: they are then taken from the flags.",
		Args: nothing,
	}
	start := func(ctx context.Context, c *client.Client, _ []string) error {
		return a.startJob(ctx, c, file, wait.value == "end")
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if wait.value == "end" {
			return a.patientVerb(start)(cmd, args)
		}
		return a.verb(start)(cmd, args)
	}
	command.Flags().StringVarP(&file, "file", "f", "", "the job as JSON; - reads standard input")
	command.Flags().Var(&wait, "wait", "until the job is charged or declined, or until it has ended")
	mustHave(command, "file")
	return command
}

func (a *app) startJob(ctx context.Context, c *client.Client, file string, toEnd bool) error {
	raw, err := a.readJob(file)
	if err != nil {
		return err
	}
	if raw, err = a.fillIn(raw); err != nil {
		return err
	}
	job, err := contract.ParseJob(raw)
	if err != nil {
		return err
	}
	// However long the job takes, its charge is told within the usual time.
	submit, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	verdict, err := c.StartJobJSON(submit, raw)
	if err != nil {
		return err
	}
	if verdict.Verdict == contract.VerdictDeclined {
		return a.showDeclined(job, verdict)
	}
	if !toEnd {
		return a.show(submitted{job.Tenant, job.JobID, verdict}, verdictTable(job, verdict))
	}
	result, err := a.awaitEnd(ctx, c, job)
	if err != nil {
		return err
	}
	return a.showResult(result)
}

// lookEvery is how often a job that is awaited is looked at for a decision that it waits for.
const lookEvery = time.Second

// awaitEnd waits until the job is closed. A dead letter is closed by a person alone, who has to be told of it.
func (a *app) awaitEnd(ctx context.Context, c *client.Client, job contract.Job) (contract.JobResult, error) {
	ctx, stop := context.WithCancel(ctx)
	looked := make(chan struct{})
	defer func() {
		stop()
		<-looked
	}()
	go func() {
		defer close(looked)
		for told := false; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery):
			}
			status, err := c.Status(ctx, job.Tenant, job.JobID)
			if err != nil {
				continue // the wait itself tells of it, where it lasts
			}
			dead := status.State == contract.StateDeadLetter
			if dead && !told {
				_, _ = fmt.Fprintf(a.stderr, "job %s is a dead letter (attempt %d was its last) and waits for a person's decision; "+
					"`%s job status %s --tenant %s` shows how to decide it. Waiting on…\n",
					job.JobID, status.Attempt, program, job.JobID, job.Tenant)
			}
			told = dead
		}
	}()
	return c.AwaitJob(ctx, job.Tenant, job.JobID)
}

// submitted is the answer to a submission.
type submitted struct {
	Tenant string `json:"tenant"`
	JobID  string `json:"jobId"`
	contract.ChargeVerdict
}

func verdictTable(job contract.Job, verdict contract.ChargeVerdict) func(io.Writer) {
	return func(w io.Writer) {
		line(w, "Job", job.JobID)
		line(w, "Verdict", verdict.Verdict)
		line(w, "Balance", verdict.Balance)
		line(w, "Reason", verdict.Reason)
	}
}

// showDeclined shows a verdict that is a refusal too. After a top-up, the same submission may go through.
func (a *app) showDeclined(job contract.Job, verdict contract.ChargeVerdict) error {
	refusal := contract.NewError(contract.CodeInsufficientCredits, contract.RetrySameKey, "declined: "+verdict.Reason, nil)
	if a.output == outputTable {
		_, _ = fmt.Fprintf(a.stderr, "%s: %s\n", refusal.Code, cell(refusal.Message))
	}
	result := struct {
		contract.Error
		submitted
	}{*refusal, submitted{job.Tenant, job.JobID, verdict}}
	if err := a.show(result, verdictTable(job, verdict)); err != nil {
		return err
	}
	return errShown
}

// showResult shows how a job ended. Whatever is not a success ends the verb with status 1.
func (a *app) showResult(result contract.JobResult) error {
	var value any = result
	if result.State != contract.StateSucceeded {
		value = struct {
			Code    contract.Code  `json:"code"`
			Message string         `json:"message"`
			Retry   contract.Retry `json:"retry"`
			contract.JobResult
		}{codeNotSucceeded, fmt.Sprintf("the job ended as %s: %s", result.State, result.Reason), contract.RetryNewKey, result}
	}
	if err := a.show(value, func(w io.Writer) {
		line(w, "Job", result.JobID)
		line(w, "State", result.State)
		line(w, "Money", moneyInWords(result.Money))
		line(w, "Attempts", result.Attempts)
		line(w, "Late", result.Late)
		line(w, "Output", string(result.Output))
		line(w, "Reason", result.Reason)
	}); err != nil {
		return err
	}
	if result.State != contract.StateSucceeded {
		return errShown
	}
	return nil
}

func badJob(format string, args ...any) error {
	return contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(format, args...), nil)
}

func (a *app) readJob(file string) ([]byte, error) {
	from := a.stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, badJob("open the job's file: %v", err)
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	// One byte more than is allowed is enough to have it refused.
	raw, err := io.ReadAll(io.LimitReader(from, contract.MaxInputBytes+1))
	if err != nil {
		return nil, badJob("read the job: %v", err)
	}
	return bytes.TrimSpace(raw), nil
}

// fillIn gives the job the tenant and the actor of the flags where it has none of its own. The rest of the text stays as
// it was written.
func (a *app) fillIn(raw []byte) ([]byte, error) {
	members := membersOf(raw)
	if members == nil {
		// What is wrong with it is said when it is parsed.
		return raw, nil
	}
	for _, own := range []struct{ name, given, variable string }{
		{"actor", a.actor, "RECLAIM_ACTOR"}, {"tenant", a.tenant, "RECLAIM_TENANT"},
	} {
		written, there := members[own.name]
		switch {
		case own.given == "":
		case !there:
			value, err := jsontext.AppendQuote(nil, own.given)
			if err != nil {
				return nil, usagef("--%s is not valid UTF-8", own.name)
			}
			separator := ","
			if len(members) == 0 {
				separator = ""
			}
			members[own.name] = value
			raw = fmt.Appendf(nil, "{%q:%s%s%s", own.name, value, separator, raw[1:])
		default:
			var text string
			if json.Unmarshal(written, &text) == nil && text != own.given {
				return nil, badJob("the job's %s is %q, but --%s (or %s) says %q: leave one of them out or make them equal",
					own.name, text, own.name, own.variable, own.given)
			}
		}
	}
	return raw, nil
}

// membersOf returns the members of a JSON object, and nil for whatever is none.
func membersOf(raw []byte) map[string]jsontext.Value {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil
	}
	return members
}
