package workflows

// ladder is the version of this package's code that a run began with. It travels in the charge's answer, so that it
// costs no event; a run keeps its number for life, also where a newer worker replays it.
//
// To change what a running workflow would notice: add the next number below with a line on what changed, raise
// newestLadder, add a predicate here (func (v ladder) settlesTwice() bool { return v >= 2 }) and branch on it. Record
// histories of the old number before the change (make histories); they must replay after it.
//
// A ChannelRefund has decided the same since its first release and carries no number: the first change adds one to what
// ReadRefund answers, where its absence means 1.
type ladder int

const (
	// ladderFirst: the first release.
	ladderFirst ladder = 1

	newestLadder = ladderFirst
)
