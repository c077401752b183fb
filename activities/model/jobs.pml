/*
 * One job of 1 attempt, and 1 more for each retry that a person grants, and two workers that both act on it.
 *
 * A worker takes the steps of workflows/machine.go by what it remembers, which may be old: the row as it was last told of it,
 * and its attempt. Its calls are those of job_guards.pml, which is what the guards do in Postgres. Everything else is left to
 * chance, and spin tries all of it: what happens in which order, which replies are lost, and when a worker dies and begins anew
 * with nothing but the row. What somebody is told stays until a reply to its call has arrived, as a signal stays in a
 * workflow's history: either worker may act on it meanwhile, any number of times. docs/model.md tells what is left out.
 *
 * With NOTHING_LOST no reply is lost and no worker dies: then nothing may go on for ever.
 */

mtype = {
	none, running_left, running_used, refunded_left, refunded_used, canceling_left, canceling_used, dead_letter,
	dead_canceling, succeeded, succeeded_late, failed, canceled, written_off
};
mtype = { applied, already, refused };
mtype = { no_entry, charge_entry, refund_entry, reclaim_entry };
mtype = { no_decision, retry, deliver, write_off };

/* _left and _used: whether the job has attempts left. canceling: refunded, with a cancel on record. */
#define is_left(r)      (r == running_left || r == refunded_left || r == canceling_left)
#define is_used(r)      (r == running_used || r == refunded_used || r == canceling_used)
#define is_paid(r)      (r == running_left || r == running_used)
#define is_canceling(r) (r == canceling_left || r == canceling_used || r == dead_canceling)
#define is_delivered(r) (r == succeeded || r == succeeded_late)
#define is_open(r)      (is_left(r) || is_used(r) || r == dead_letter || r == dead_canceling)

/* The database: the row, its finished attempts, the job's entries, and which decisions are on record. */
mtype row = none;
byte attempts, charges, refunds, reclaims;
bool decided[2];

/* What the proof remembers: that a delivery was taken, and which movements somebody was told of. */
bool delivered, knows_charge, knows_refund, knows_settle;

/* What somebody is told: reports of success, a cancel, and two decisions of a person. Promises pass and attempts end by
   themselves. */
byte successes;
bool cancel;
mtype decision[2] = no_decision;

/* within a call only */
mtype before, answer;

inline becomes(its_answer, its_row, its_entry) {
	answer = its_answer;
	row = its_row;
	if
	:: its_entry == charge_entry -> charges++
	:: its_entry == refund_entry -> refunds++
	:: its_entry == reclaim_entry -> reclaims++
	:: else
	fi
}

#include "job_guards.pml"

/* Whoever asks again for what was done before, after a lost reply or by old memory, is told so. */
inline once(known) {
	assert(!known || answer == already);
	known = known || answer == applied || answer == already
}

/* A worker dies with all it remembers. */
inline die() {
	seen = none; working = false; attempt = 0; told = false; ended = false
}

/* Ends a call: the invariants hold, and the worker is told the row, or its reply is lost and it may call
   again, or it dies. */
inline reply() {
	d_step {
		if
		:: is_left(before) && is_used(row) -> attempts++
		:: else
		fi;
		assert(charges <= 1 && refunds <= 1 && reclaims <= 1);
		assert(charges + reclaims - refunds == 0 || charges + reclaims - refunds == 1); /* 0 or -cost, never -2 cost */
		assert((charges + reclaims - refunds == 1) == (delivered || is_paid(row)));
		assert(delivered == is_delivered(row)); /* and what was delivered stays so */
		before = 0; answer = 0
	}
	if
	:: d_step {
		told = true; seen = row;
		if
		:: !is_open(row) -> working = false; attempt = 0 /* the work is stopped, and what it did is a report */
		:: is_open(row) && (!working || ended) -> working = false; attempt = attempts
		:: else
		fi }
#ifndef NOTHING_LOST
	:: told = false
	:: die(); goto begin
#endif
	fi;
	ended = false
}

/* Makes a decision, which is on record with its effect, or with its refusal. */
inline resolve(n) {
	d_step {
		before = row;
		if
		:: decision[n] == retry && !decided[n] -> retry_guard()
		:: decision[n] == retry && decided[n] -> retry_again_guard()
		:: decision[n] == deliver && !decided[n] -> deliver_guard(); delivered = delivered || answer == applied
		:: decision[n] == deliver && decided[n] -> deliver_again_guard()
		:: decision[n] == write_off && !decided[n] -> write_off_guard()
		:: decision[n] == write_off && decided[n] -> write_off_again_guard()
		fi;
		assert(!decided[n] || answer == already);
		decided[n] = true
	}
	reply();
	if
	:: told -> decision[n] = no_decision; decided[n] = false
	:: else
	fi;
	told = false
}

/* the attempt that ends is one that the row does not count yet */
#define is_news (working && attempt > attempts)
#define idle    (is_open(seen) && !working)

proctype worker() {
	mtype seen = none;
	bool working; /* the last attempt that it knows of is its own and goes on, or ended and the row may not tell of it */
	byte attempt;
	bool told, ended; /* within a call only */

begin:
	atomic {
		before = row;
		if
		:: d_step { charge_guard(); once(knows_charge) }
		:: row == none -> charge_poor_guard()
		fi;
		reply();
		if
		:: told -> told = false
		:: !told -> goto begin
		fi
	}
end:
	do
#ifndef NOTHING_LOST
	:: atomic { working -> die(); goto begin }
#endif

	/* A delivery, whichever way it became known. */
	:: atomic { seen != none && successes > 0 ->
		d_step { before = row; settle_guard(); once(knows_settle); delivered = true }
		reply();
		if
		:: told -> successes--
		:: else
		fi;
		told = false }

	:: atomic { seen != none && decision[0] != no_decision -> resolve(0) }
	:: atomic { seen != none && decision[1] != no_decision -> resolve(1) }

	/* The attempt ends, failed or unknown, and the customer is refunded, for good where it never will succeed. */
	:: atomic { working && is_paid(seen) ->
		d_step {
			before = row; ended = true;
			if
			:: is_news -> assert(attempt == attempts + 1); refund_ended_guard()
			:: else -> refund_guard()
			fi;
			once(knows_refund)
		}
		reply(); told = false }
	:: atomic { working && !is_canceling(seen) ->
		d_step { before = row; ended = true; close_failed_guard() }
		reply(); told = false }
	/* It ends, and the customer keeps the refund, or waits for it until the promise passes. */
	:: atomic { working ->
		d_step {
			before = row; ended = true;
			if
			:: is_news -> assert(attempt == attempts + 1); record_ended_guard()
			:: else -> record_old_guard()
			fi
		}
		reply(); told = false }

	/* The promise passes, or the attempts are used up. */
	:: atomic { is_paid(seen) ->
		d_step { before = row; refund_guard(); once(knows_refund) }
		reply(); told = false }

	/* The job is to be canceled, perhaps as its attempt ends. */
	:: atomic { cancel && is_open(seen) && !is_canceling(seen) ->
		if
		:: d_step {
			working ->
			before = row; ended = true;
			if
			:: is_news -> assert(attempt == attempts + 1); refund_cancel_ended_guard()
			:: else -> refund_cancel_guard()
			fi }
		:: d_step { before = row; refund_cancel_guard() }
		fi;
		once(knows_refund);
		reply(); told = false }
	:: atomic { idle && is_canceling(seen) ->
		d_step { before = row; close_canceled_guard() }
		reply(); told = false }

	:: atomic { idle && seen == refunded_used ->
		d_step { before = row; park_guard() }
		reply(); told = false }
	:: atomic { idle && (seen == running_left || seen == refunded_left) -> working = true; attempt++ }
	od
}

/* When nothing can happen any more, nothing has ended in silence: the job is closed or waits for a person, and neither a
   delivery nor a cancel was overlooked. */
proctype rest() {
	timeout;
	assert(!is_open(row) || row == dead_letter && !cancel);
	assert(row == none || successes == 0 && decision[0] == no_decision && decision[1] == no_decision)
}

init {
	atomic {
		select(successes : 0 .. 2);
		if
		:: cancel = true
		:: skip
		fi;
		/* which decision comes first is left to the workers */
		if
		:: skip
		:: decision[0] = retry
		:: decision[0] = deliver
		:: decision[0] = write_off
		:: decision[0] = retry; decision[1] = retry
		:: decision[0] = retry; decision[1] = deliver
		:: decision[0] = retry; decision[1] = write_off
		:: decision[0] = deliver; decision[1] = deliver
		:: decision[0] = deliver; decision[1] = write_off
		:: decision[0] = write_off; decision[1] = write_off
		fi;
		run worker();
		run worker();
		run rest()
	}
}
