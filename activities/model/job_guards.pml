/* Made by `make model-tables` from what the guards do in Postgres; a test compares them. Do not edit.
   Each line is a row that a guard may find and what it then does: answer, row after it, entry. */

inline charge_guard() {
	if
	:: row == none           -> becomes(applied, running_left, charge_entry)
	:: row == running_left   -> becomes(already, running_left, no_entry)
	:: row == running_used   -> becomes(already, running_used, no_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline charge_poor_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* insufficient_credits */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline refund_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, refunded_left, refund_entry)
	:: row == running_used   -> becomes(applied, refunded_used, refund_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* delivered */
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline refund_ended_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, refunded_used, refund_entry)
	:: row == refunded_left  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_used, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* delivered */
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline refund_cancel_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, canceling_left, refund_entry)
	:: row == running_used   -> becomes(applied, canceling_used, refund_entry)
	:: row == refunded_left  -> becomes(already, canceling_left, no_entry)
	:: row == refunded_used  -> becomes(already, canceling_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_canceling, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* delivered */
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline refund_cancel_ended_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, canceling_used, refund_entry)
	:: row == refunded_left  -> becomes(already, canceling_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_used, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* delivered */
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline settle_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, succeeded, no_entry)
	:: row == running_used   -> becomes(applied, succeeded, no_entry)
	:: row == refunded_left  -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == refunded_used  -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceling_left -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceling_used -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == dead_letter    -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == dead_canceling -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceled       -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == written_off    -> becomes(applied, succeeded_late, reclaim_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline record_ended_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, running_used, no_entry)
	:: row == refunded_left  -> becomes(applied, refunded_used, no_entry)
	:: row == canceling_left -> becomes(applied, canceling_used, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* not_running */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* not_running */
	:: row == failed         -> becomes(refused, failed, no_entry) /* not_running */
	:: row == canceled       -> becomes(refused, canceled, no_entry) /* not_running */
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* not_running */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline record_old_guard() {
	if
	:: row == running_used   -> becomes(already, running_used, no_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline park_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(refused, running_left, no_entry) /* not_refunded */
	:: row == running_used   -> becomes(refused, running_used, no_entry) /* not_refunded */
	:: row == refunded_left  -> becomes(refused, refunded_left, no_entry) /* attempts_left */
	:: row == refunded_used  -> becomes(applied, dead_letter, no_entry)
	:: row == canceling_left -> becomes(refused, canceling_left, no_entry) /* attempts_left */
	:: row == canceling_used -> becomes(applied, dead_canceling, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* not_running */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* not_running */
	:: row == failed         -> becomes(refused, failed, no_entry) /* not_running */
	:: row == canceled       -> becomes(refused, canceled, no_entry) /* not_running */
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* not_running */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline close_failed_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, failed, refund_entry)
	:: row == running_used   -> becomes(applied, failed, refund_entry)
	:: row == refunded_left  -> becomes(applied, failed, no_entry)
	:: row == refunded_used  -> becomes(applied, failed, no_entry)
	:: row == canceling_left -> becomes(applied, failed, no_entry)
	:: row == canceling_used -> becomes(applied, failed, no_entry)
	:: row == dead_letter    -> becomes(applied, failed, no_entry)
	:: row == dead_canceling -> becomes(applied, failed, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* closed */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* closed */
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(refused, canceled, no_entry) /* closed */
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* closed */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline close_canceled_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, canceled, refund_entry)
	:: row == running_used   -> becomes(applied, canceled, refund_entry)
	:: row == refunded_left  -> becomes(applied, canceled, no_entry)
	:: row == refunded_used  -> becomes(applied, canceled, no_entry)
	:: row == canceling_left -> becomes(applied, canceled, no_entry)
	:: row == canceling_used -> becomes(applied, canceled, no_entry)
	:: row == dead_letter    -> becomes(applied, canceled, no_entry)
	:: row == dead_canceling -> becomes(applied, canceled, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* closed */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* closed */
	:: row == failed         -> becomes(refused, failed, no_entry) /* closed */
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* closed */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline retry_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(refused, running_left, no_entry) /* wrong_state */
	:: row == running_used   -> becomes(refused, running_used, no_entry) /* wrong_state */
	:: row == refunded_left  -> becomes(refused, refunded_left, no_entry) /* wrong_state */
	:: row == refunded_used  -> becomes(refused, refunded_used, no_entry) /* wrong_state */
	:: row == canceling_left -> becomes(refused, canceling_left, no_entry) /* wrong_state */
	:: row == canceling_used -> becomes(refused, canceling_used, no_entry) /* wrong_state */
	:: row == dead_letter    -> becomes(applied, refunded_left, no_entry)
	:: row == dead_canceling -> becomes(applied, canceling_left, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* wrong_state */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry) /* wrong_state */
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline deliver_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, succeeded, no_entry)
	:: row == running_used   -> becomes(applied, succeeded, no_entry)
	:: row == refunded_left  -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == refunded_used  -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceling_left -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceling_used -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == dead_letter    -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == dead_canceling -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* wrong_state */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* wrong_state */
	:: row == failed         -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == canceled       -> becomes(applied, succeeded_late, reclaim_entry)
	:: row == written_off    -> becomes(applied, succeeded_late, reclaim_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline write_off_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(applied, written_off, refund_entry)
	:: row == running_used   -> becomes(applied, written_off, refund_entry)
	:: row == refunded_left  -> becomes(applied, written_off, no_entry)
	:: row == refunded_used  -> becomes(applied, written_off, no_entry)
	:: row == canceling_left -> becomes(applied, written_off, no_entry)
	:: row == canceling_used -> becomes(applied, written_off, no_entry)
	:: row == dead_letter    -> becomes(applied, written_off, no_entry)
	:: row == dead_canceling -> becomes(applied, written_off, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry) /* wrong_state */
	:: row == succeeded_late -> becomes(refused, succeeded_late, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry) /* wrong_state */
	:: row == written_off    -> becomes(refused, written_off, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline retry_again_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(already, running_left, no_entry)
	:: row == running_used   -> becomes(already, running_used, no_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline deliver_again_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(already, running_left, no_entry)
	:: row == running_used   -> becomes(already, running_used, no_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline write_off_again_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry) /* no_job */
	:: row == running_left   -> becomes(already, running_left, no_entry)
	:: row == running_used   -> becomes(already, running_used, no_entry)
	:: row == refunded_left  -> becomes(already, refunded_left, no_entry)
	:: row == refunded_used  -> becomes(already, refunded_used, no_entry)
	:: row == canceling_left -> becomes(already, canceling_left, no_entry)
	:: row == canceling_used -> becomes(already, canceling_used, no_entry)
	:: row == dead_letter    -> becomes(already, dead_letter, no_entry)
	:: row == dead_canceling -> becomes(already, dead_canceling, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry)
	:: row == succeeded_late -> becomes(already, succeeded_late, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry)
	:: row == written_off    -> becomes(already, written_off, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}
