/*
 * Two refunds of one order, which paid for one of them: the first is a job's, which may yet succeed, and the second a person's
 * request. Two workers send both and look them up, and the channel tells what it does in its own time.
 *
 * Every call is one of refund_guards.pml, which is what the guards do in Postgres. Everything else is left to chance, and spin
 * tries all of it: in which order things happen, which requests and answers are lost, where a worker dies, and how often and
 * how late the channel tells what it did. The channel keeps its word: it moves a number's money once while it honours the
 * number, and what it tells happened. So do people, who settle and release by what the channel shows them.
 */

mtype = { none, accepted, unknown, unknown_again, pending, succeeded, failed, failed_unnamed, canceled, reversed };
mtype = { applied, already, refused };
mtype = { no_entry, payout_entry, return_entry, refund_entry, reclaim_entry };
/* what an order has reserved and refunded: one more reserved, that one spent, or freed, or a spent one regained */
mtype = { order_same, reserves, spends, frees, regains };
/* what the channel did with a number */
mtype = { not_known, under_way, sent, refused_later, taken_back };
mtype = { job_charged, job_refunded, job_late };
/* where a worker is with a number: its request is under way, or was refused and Postgres is not told yet */
mtype = { free, asking, was_refused };

#define is_open(r)     (r == accepted || r == unknown || r == unknown_again || r == pending)
#define is_returned(r) (r == failed || r == failed_unnamed || r == canceled || r == reversed)

/* The database. unknown_again was sent more than once; failed_unnamed failed before the channel gave its reference. */
mtype rows[2] = none;
byte payouts[2], returns[2];
byte reserved, spent; /* of the order's 1 */
mtype job = job_charged;
byte job_refunds, job_reclaims;

/* The channel: how often it sent a number's money, and took it back, whether it honours the number no longer, and the requests
   that are under way from workers that died. */
mtype far[2] = not_known;
byte moved[2], back[2];
bool over[2];
byte orphans[2];
byte asked[2]; /* the requests under way from workers that live */

/* What the proof remembers: that Postgres was told how it ended. */
bool heard_sent[2], heard_failed[2];

/* within a call only */
byte it;
mtype row, answer;

inline becomes(its_answer, its_row, its_entry, its_order, its_job) {
	answer = its_answer;
	row = its_row;
	if
	:: its_entry == payout_entry -> payouts[it]++
	:: its_entry == return_entry -> returns[it]++
	:: else
	fi;
	if
	:: its_order == reserves -> reserved++
	:: its_order == spends -> reserved--; spent++
	:: its_order == frees -> reserved--
	:: its_order == regains -> spent--
	:: else
	fi;
	if
	:: its_job == refund_entry -> job_refunds++
	:: its_job == reclaim_entry -> job_reclaims++
	:: else
	fi
}

#include "refund_guards.pml"

#define on(n) it = n; row = rows[n]

/* what the job's account and the customer's own hold of the job's cost, the charge included */
#define worth (moved[0] + job_refunds + returns[0] - 1 - payouts[0] - job_reclaims - back[0])
#define at_end(n) (rows[n] == none || rows[n] == canceled || rows[n] == reversed || \
		rows[n] == succeeded && far[n] == sent || is_returned(rows[n]) && far[n] != under_way)

inline check_one(n) {
	assert(payouts[n] <= 1 && returns[n] <= payouts[n]);
	assert(payouts[n] == (rows[n] != none) && returns[n] == is_returned(rows[n]));
	assert(moved[n] <= 1); /* a number's money moves once */
	/* the credits come back if and only if no money moved, or it was taken back, and none will move */
	assert(!is_returned(rows[n]) || far[n] == not_known || far[n] == refused_later || far[n] == taken_back);
	assert(rows[n] != succeeded || far[n] == sent || far[n] == taken_back);
	/* however late, often and out of order the channel tells it, the end is the same */
	assert(!(heard_sent[n] && far[n] == sent) || rows[n] == succeeded);
	assert(!heard_failed[n] || is_returned(rows[n]))
}

/* The invariants, after each call. */
inline done() {
	rows[it] = row;
	check_one(0);
	check_one(1);
	assert(reserved + spent <= 1);
	assert(reserved == is_open(rows[0]) + is_open(rows[1]));
	assert(spent == (rows[0] == succeeded) + (rows[1] == succeeded));
	assert(moved[0] + moved[1] <= 1 + back[0] + back[1]); /* never more than was paid */
	assert(job_refunds <= 1 && job_reclaims <= job_refunds);
	/* the job's late success, whenever it comes, loses nothing and takes nothing twice */
	assert(!at_end(0) || worth == (job == job_refunded -> 0 : -1));
	it = 0; row = 0; answer = 0
}

/* A request arrives at the channel. */
inline arrives(n) {
	if
	:: far[n] == not_known -> far[n] = under_way
	:: far[n] == not_known -> is_refused = true /* and the channel keeps nothing of it */
	:: far[n] != not_known && over[n] -> moved[n]++
	:: far[n] != not_known && !over[n] /* it answers what became of the number, which it may also tell later */
	:: far[n] != not_known && !over[n] -> is_refused = true
	fi
}

/* A worker sends a number that Postgres lets it send. */
inline send(n) {
	d_step {
		on(n);
		if
		:: over[n] -> send_expired_guard()
		:: else -> send_guard()
		fi;
		if
		:: answer == applied -> at = asking; mine = n; asked[n]++
		:: else
		fi;
		done()
	}
}

proctype worker() {
	mtype at = free;
	byte mine;
	bool is_refused;
end:
	do
	:: atomic { at == free && rows[0] != none -> send(0) }
	:: atomic { at == free && rows[1] != none -> send(1) }
	:: atomic { at == asking ->
		asked[mine]--;
		arrives(mine);
		if
		:: is_refused -> is_refused = false; at = was_refused
		:: else -> at = free; mine = 0
		fi }
	:: atomic { at == was_refused ->
		d_step { on(mine); told_refused_guard(); done(); at = free; mine = 0 } }
	/* It dies: the request goes on without it, or was never sent, or the refusal is lost. */
	:: atomic { at == asking && orphans[mine] < 2 -> asked[mine]--; orphans[mine]++; at = free; mine = 0 }
	:: atomic { at == asking -> asked[mine]--; at = free; mine = 0 }
	:: atomic { at == was_refused -> at = free; mine = 0 }
	od
}

/* The channel and the look-ups of one number, and what people do about it. */
proctype number(byte n) {
	bool is_refused;
end:
	do
	:: atomic { orphans[n] > 0 -> orphans[n]--; arrives(n); is_refused = false }
	:: atomic { far[n] == under_way -> far[n] = sent; moved[n]++ }
	:: atomic { far[n] == under_way -> far[n] = refused_later }
	:: atomic { far[n] == sent -> far[n] = taken_back; back[n]++ }
	/* A number is sent so early that it is still honoured when it arrives. */
	:: atomic { !over[n] && rows[n] != none && rows[n] != accepted && asked[n] + orphans[n] == 0 -> over[n] = true }

	/* What the channel did, it tells in answers, look-ups, notices and settlements, at any time after. */
	:: d_step { far[n] != not_known -> on(n); told_pending_guard(); done() }
	:: d_step { far[n] == sent || far[n] == taken_back ->
		on(n); told_succeeded_guard(); heard_sent[n] = true; done() }
	:: d_step { far[n] == refused_later || far[n] == taken_back ->
		on(n); told_failed_guard(); heard_failed[n] = true; done() }
	:: d_step { rows[n] != none -> on(n); told_unknown_guard(); done() }
	:: d_step { rows[n] != none -> on(n); told_not_found_guard(); done() }

	:: d_step { rows[n] != none -> on(n); cancel_guard(); done() }
	:: d_step { far[n] == sent -> on(n); settle_guard(); heard_sent[n] = true; done() }
	:: d_step { far[n] == refused_later || far[n] == not_known && over[n] ->
		on(n); release_guard(); heard_failed[n] = true; done() }
	:: d_step { rows[n] != none -> on(n); resend_guard(); done() }
	:: d_step { rows[n] != none -> on(n); extend_guard(); done() }
	od
}

/* A person's request, made again and again. */
proctype request() {
end:
	do
	:: d_step {
		on(1);
		if
		:: row == none && reserved + spent == 1 -> accept_full_guard()
		:: else -> accept_guard()
		fi;
		done() }
	od
}

/* The job: refunded to its source, and delivered late, each told again and again. */
proctype late_job() {
end:
	do
	:: d_step {
		on(0);
		if
		:: job == job_charged && reserved + spent == 1 -> job_refund_full_guard(); job = job_refunded
		:: job == job_charged && reserved + spent == 0 -> job_refund_guard(); job = job_refunded
		:: job == job_refunded && row == none && reserved + spent == 1 -> job_refund_again_full_guard()
		:: job == job_refunded && (row != none || reserved + spent == 0) -> job_refund_again_guard()
		:: job == job_late -> job_refund_late_guard()
		fi;
		done() }
	:: d_step { job == job_refunded -> on(0); job_success_guard(); job = job_late; done() }
	:: d_step { job == job_late -> on(0); job_success_late_guard(); done() }
	od
}

init {
	atomic {
		run worker();
		run worker();
		run number(0);
		run number(1);
		run request();
		run late_job()
	}
}
