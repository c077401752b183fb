package client_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func ExampleClient_TopUp() {
	for range 2 {
		moved, err := reclaim().TopUp(ctx(), client.Movement{
			Tenant: "topup", Actor: "shop", Account: "team-7", Key: "invoice 17", Amount: 1000,
		})
		fmt.Println(moved.Already, moved.BalanceAfter, err)
	}
	// Output:
	// false 1000 <nil>
	// true 1000 <nil>
}

func ExampleClient_Adjust() {
	topUp("adjust")
	moved, err := reclaim().Adjust(ctx(), client.Movement{
		Tenant: "adjust", Actor: "shop", Account: "team-7", Key: "ticket 9", Amount: -200, Operator: "ann", Reason: "given twice",
	})
	fmt.Println(moved.BalanceAfter, err)
	// Output: 800 <nil>
}

func ExampleClient_Account() {
	topUp("account")
	account, err := reclaim().Account(ctx(), "account", "team-7")
	fmt.Println(account.Balance, account.Asset, err)
	// Output: 1000 CREDIT <nil>
}

func ExampleClient_StartJob() {
	topUp("start")
	verdict, err := reclaim().StartJob(ctx(), contract.Job{
		Tenant: "start", JobID: "video-1", Account: "team-7", Cost: 40,
		Promise: contract.Duration(30 * time.Second),
		Work:    contract.Work{Activity: "Render", TaskQueue: "gpu", Timeout: contract.Duration(10 * time.Minute)},
	})
	fmt.Println(verdict.Verdict, verdict.Balance, err)
	// Output: charged 960 <nil>
}

// The same id with other parameters is another job, which is refused.
func ExampleClient_StartJob_conflict() {
	topUp("conflict")
	job := video("conflict", "video-1", "Render", time.Minute)
	must(reclaim().StartJob(ctx(), job))
	job.Cost = 41
	_, err := reclaim().StartJob(ctx(), job)
	refusal, _ := errors.AsType[*contract.Error](err)
	fmt.Println(refusal.Code, refusal.Retry)
	// Output: Conflict new_key
}

func ExampleClient_StartJob_declined() {
	topUp("declined")
	job := video("declined", "video-1", "Render", time.Minute)
	job.Cost = 5000
	verdict, err := reclaim().StartJob(ctx(), job)
	fmt.Println(verdict.Verdict, "-", verdict.Reason, err)
	// Output: declined - account team-7 has 1000 of the 5000 that the job costs <nil>
}

func ExampleClient_StartJobJSON() {
	topUp("json")
	verdict, err := reclaim().StartJobJSON(ctx(), []byte(`{"tenant":"json","jobId":"video-1","account":"team-7","cost":40,
		"work":{"activity":"Render","taskQueue":"gpu","input":{"clip":"c-17"},"timeout":"10m"},"promise":"30s"}`))
	fmt.Println(verdict.Verdict, err)
	// Output: charged <nil>
}

func ExampleClient_SubmitJob() {
	topUp("submit")
	verdict, pending, err := reclaim().SubmitJob(ctx(), video("submit", "video-1", "Render", time.Minute), time.Minute)
	fmt.Println(verdict.Verdict, pending, err)
	// Output: charged false <nil>
}

// Work that is done after its promise was refunded in between; what it delivered is charged again.
func ExampleClient_AwaitJob() {
	topUp("late")
	must(reclaim().StartJob(ctx(), video("late", "video-1", "RenderSlowly", time.Second)))
	result, err := reclaim().AwaitJob(ctx(), "late", "video-1")
	fmt.Println(result.State, "late:", result.Late, "net:", result.Net, string(result.Output), err)
	// Output: succeeded late: true net: 40 "s3://videos/1" <nil>
}

func ExampleClient_Job() {
	topUp("job")
	must(reclaim().StartJob(ctx(), video("job", "video-1", "Render", time.Minute)))
	must(reclaim().AwaitJob(ctx(), "job", "video-1"))
	job, err := reclaim().Job(ctx(), "job", "video-1")
	fmt.Println(job.State, job.Charged, job.WaitsFor, err)
	// Output: succeeded 40 nothing <nil>
}

func ExampleClient_Status() {
	topUp("status")
	must(reclaim().StartJob(ctx(), video("status", "video-1", "Render", time.Minute)))
	must(reclaim().AwaitJob(ctx(), "status", "video-1"))
	status, err := reclaim().Status(ctx(), "status", "video-1")
	fmt.Println(status.State, status.Attempt, status.Actions, err)
	// Output: succeeded 1 [] <nil>
}

func ExampleClient_Timeline() {
	topUp("timeline")
	must(reclaim().StartJob(ctx(), video("timeline", "video-1", "RenderSlowly", time.Second)))
	must(reclaim().AwaitJob(ctx(), "timeline", "video-1"))
	story, err := reclaim().Timeline(ctx(), "timeline", "video-1")
	for _, moment := range story {
		fmt.Println(moment.Kind, moment.Amount)
	}
	fmt.Println(err)
	// Output:
	// charge -40
	// refund 40
	// delivered 0
	// reclaim -40
	// <nil>
}

// deadLetter leaves a job whose attempts are used up.
func deadLetter(tenant string) {
	topUp(tenant)
	must(reclaim().StartJob(ctx(), video(tenant, "video-1", "Break", time.Minute)))
	for must(reclaim().Job(ctx(), tenant, "video-1")).State != contract.StateDeadLetter {
		<-time.After(20 * time.Millisecond)
	}
}

func ExampleClient_Resolve() {
	deadLetter("resolve")
	answer, err := reclaim().Resolve(ctx(), "resolve", "video-1", contract.Resolution{
		ID: "ticket-31", Action: contract.ActionWriteOff, Operator: "ann", Reason: "the clip is broken",
	})
	fmt.Println(answer.Outcome, answer.State, err)
	// Output: applied written_off <nil>
}

func ExampleClient_ReportOutcome() {
	deadLetter("outcome")
	err := reclaim().ReportOutcome(ctx(), "outcome", "video-1", contract.Outcome{
		State: contract.OutcomeSucceeded, Output: []byte(`"s3://videos/1"`), Source: "gpu-3",
	})
	result := must(reclaim().AwaitJob(ctx(), "outcome", "video-1"))
	fmt.Println(result.State, result.Net, err)
	// Output: succeeded 40 <nil>
}

func ExampleClient_Cancel() {
	deadLetter("cancel")
	err := reclaim().Cancel(ctx(), "cancel", "video-1")
	result := must(reclaim().AwaitJob(ctx(), "cancel", "video-1"))
	fmt.Println(result.State, result.Net, err)
	// Output: canceled 0 <nil>
}

func ExampleClient_Statement() {
	topUp("statement")
	period := must(client.ParsePeriod("2026-01-01", "", "Europe/Berlin"))
	statement, err := reclaim().Statement(ctx(), client.StatementQuery{Tenant: "statement", Account: "team-7", Period: period})
	fmt.Println(statement.Opening, statement.Closing, err)
	_, err = statement.Entries(ctx(), func(entry client.Entry) error {
		fmt.Println(entry.Seq, entry.Type, entry.Amount, entry.BalanceAfter)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 0 1000 <nil>
	// 1 topup 1000 1000
	// <nil>
}

func ExampleStatement_WriteCSV() {
	topUp("csv")
	statement := must(reclaim().Statement(ctx(), client.StatementQuery{Tenant: "csv", Account: "team-7", After: 1}))
	var text strings.Builder
	err := statement.WriteCSV(ctx(), &text)
	// Lines end as RFC 4180 has it.
	fmt.Println(strings.ReplaceAll(text.String(), "\r\n", "\n"), err)
	// Output:
	// seq,time,type,amount,balance,job,order,refund,reason
	// 0,,opening,,0,,,,"account team-7, CREDIT, UTC"
	// 1,,closing,,1000,,,,
	//  <nil>
}

func ExampleClient_AddOrder() {
	for range 2 {
		added, err := reclaim().AddOrder(ctx(), contract.Order{
			Tenant: "order", OrderID: "order-1", Account: "team-7", Channel: "bank", Payment: "pi_17", Currency: "EUR",
			Paid: 10_000, Credits: 1000, Actor: "shop", Key: "order-1",
		})
		fmt.Println(added.Already, added.Balance, err)
	}
	// Output:
	// false 1000 <nil>
	// true 1000 <nil>
}

func ExampleClient_Order() {
	paidOrder("left")
	order, err := reclaim().Order(ctx(), "left", "order-1")
	fmt.Println(order.Left, order.Currency, order.LeftCredits, err)
	// Output: 10000 eur 1000 <nil>
}

func ExampleClient_RequestRefund() {
	paidOrder("refund")
	for range 2 {
		refund, err := reclaim().RequestRefund(ctx(), contract.RefundRequest{
			Tenant: "refund", Actor: "shop", Key: "ticket 17", OrderID: "order-1", Amount: 2500, Reason: "half of it was unusable",
		})
		fmt.Println(refund.Created, refund.Amount, refund.Currency, refund.Credits, err)
	}
	// Output:
	// true 2500 eur 250 <nil>
	// false 2500 eur 250 <nil>
}

// refundOf asks for a refund of 25.00 EUR.
func askRefund(tenant string) string {
	paidOrder(tenant)
	return must(reclaim().RequestRefund(ctx(), contract.RefundRequest{
		Tenant: tenant, Actor: "shop", Key: "ticket 17", OrderID: "order-1", Amount: 2500, Reason: "half of it was unusable",
	})).RefundID
}

func ExampleClient_AwaitRefund() {
	refundID := askRefund("await")
	err := reclaim().AwaitRefund(ctx(), "await", refundID)
	refund := must(reclaim().Refund(ctx(), "await", refundID))
	fmt.Println(refund.State, err)
	// Output: succeeded <nil>
}

func ExampleClient_FindRefund() {
	refundID := askRefund("find")
	refund, err := reclaim().FindRefund(ctx(), "find", "shop", "ticket 17")
	fmt.Println(refund.RefundID == refundID, err)
	// Output: true <nil>
}

func ExampleClient_ResolveRefund() {
	// The bank takes its time.
	number := contract.RefundNumber("decide", "shop", "ticket 17")
	exampleStack().payments.Script(number, simulator.Script{Life: []simulator.Step{{Status: "pending"}}})
	refundID := askRefund("decide")
	for must(reclaim().Refund(ctx(), "decide", refundID)).State != contract.RefundPending {
		<-time.After(20 * time.Millisecond)
	}
	answer, err := reclaim().ResolveRefund(ctx(), "decide", refundID, contract.RefundResolution{
		ID: "ticket-32", Action: contract.ActionExtend, Operator: "ann", Reason: "the bank has a holiday",
	})
	fmt.Println(answer.Outcome, answer.State, err)
	// Output: applied pending <nil>
}

func ExampleClient_Issues() {
	issues, err := reclaim().Issues(ctx(), "issues", false)
	fmt.Println(len(issues), err)
	refunds, err := reclaim().WaitingRefunds(ctx(), "issues")
	fmt.Println(len(refunds), err)
	// Output:
	// 0 <nil>
	// 0 <nil>
}

func ExampleClient_CreateKey() {
	key, err := reclaim().CreateKey(ctx(), "keys", "checkout", []contract.Scope{contract.ScopeJobsWrite})
	fmt.Println(key.Actor, key.Scopes, err)
	known, err := reclaim().Authenticate(ctx(), key.Secret)
	fmt.Println(known.Tenant, known.Allows(contract.ScopeJobsWrite), known.Allows(contract.ScopeResolve), err)
	must(reclaim().RevokeKey(ctx(), "keys", key.KeyID))
	_, err = reclaim().Authenticate(ctx(), key.Secret)
	fmt.Println(contract.CodeOf(err))
	// Output:
	// checkout [jobs:write] <nil>
	// keys true false <nil>
	// Unauthorized
}

func ExampleClient_Audit() {
	topUp("audit")
	report, err := reclaim().Audit(ctx(), "audit")
	fmt.Println(report.Sound, report.Breaks, err)
	// Output: true [] <nil>
}
