// Package workflows decides what happens next. MeteredJob is the run of one metered job: metered_job.go is its loop,
// machine.go the pure rules that the loop follows, job_calls.go the calls it makes, job_messages.go what it is told
// from outside, job_work.go how the work is run and its answers are read.
package workflows
