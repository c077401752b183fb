// Package activities touches the world on behalf of the workflows: guarded writes whose answers say what is true now.
// Each file answers for one kind of thing: job_*.go for a job's money and story.
package activities
