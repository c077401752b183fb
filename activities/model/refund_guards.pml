/* Made by `make model-tables` from what the guards do in Postgres; a test compares them. Do not edit.
   Each line is a row that a guard may find and what it then does: answer, row after it, the refund's entry, the order, the job's entry. */

inline accept_guard() {
	if
	:: row == none           -> becomes(applied, accepted, payout_entry, reserves, no_entry)
	:: row == accepted       -> becomes(already, accepted, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline accept_full_guard() {
	if
	:: row == none           -> becomes(refused, none, no_entry, order_same, no_entry) /* capacity */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline send_guard() {
	if
	:: row == accepted       -> becomes(applied, unknown, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(applied, unknown_again, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(applied, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(refused, pending, no_entry, order_same, no_entry) /* wrong_state */
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline send_expired_guard() {
	if
	:: row == accepted       -> becomes(applied, unknown, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(refused, unknown, no_entry, order_same, no_entry) /* number_expired */
	:: row == unknown_again  -> becomes(refused, unknown_again, no_entry, order_same, no_entry) /* number_expired */
	:: row == pending        -> becomes(refused, pending, no_entry, order_same, no_entry) /* wrong_state */
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_unknown_guard() {
	if
	:: row == accepted       -> becomes(already, accepted, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_not_found_guard() {
	if
	:: row == accepted       -> becomes(already, accepted, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(refused, pending, no_entry, order_same, no_entry) /* reference_lost */
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* reference_lost */
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_pending_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == unknown        -> becomes(applied, pending, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(applied, pending, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* pending_after_failure */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_succeeded_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == unknown        -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == unknown_again  -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == pending        -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* success_after_failure */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* success_after_failure */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_failed_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == unknown        -> becomes(applied, failed, return_entry, frees, no_entry)
	:: row == unknown_again  -> becomes(applied, failed, return_entry, frees, no_entry)
	:: row == pending        -> becomes(applied, failed, return_entry, frees, no_entry)
	:: row == succeeded      -> becomes(applied, reversed, return_entry, regains, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline told_refused_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* refund_never_sent */
	:: row == unknown        -> becomes(applied, failed_unnamed, return_entry, frees, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline cancel_guard() {
	if
	:: row == accepted       -> becomes(applied, canceled, return_entry, frees, no_entry)
	:: row == unknown        -> becomes(refused, unknown, no_entry, order_same, no_entry) /* wrong_state */
	:: row == unknown_again  -> becomes(refused, unknown_again, no_entry, order_same, no_entry) /* wrong_state */
	:: row == pending        -> becomes(refused, pending, no_entry, order_same, no_entry) /* wrong_state */
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline settle_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* wrong_state */
	:: row == unknown        -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == unknown_again  -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == pending        -> becomes(applied, succeeded, no_entry, spends, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline release_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* wrong_state */
	:: row == unknown        -> becomes(applied, failed_unnamed, return_entry, frees, no_entry)
	:: row == unknown_again  -> becomes(applied, failed_unnamed, return_entry, frees, no_entry)
	:: row == pending        -> becomes(applied, failed, return_entry, frees, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline resend_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* wrong_state */
	:: row == unknown        -> becomes(applied, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(applied, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(refused, pending, no_entry, order_same, no_entry) /* wrong_state */
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline extend_guard() {
	if
	:: row == accepted       -> becomes(refused, accepted, no_entry, order_same, no_entry) /* wrong_state */
	:: row == unknown        -> becomes(applied, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(applied, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(applied, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(refused, succeeded, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed         -> becomes(refused, failed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == failed_unnamed -> becomes(refused, failed_unnamed, no_entry, order_same, no_entry) /* wrong_state */
	:: row == canceled       -> becomes(refused, canceled, no_entry, order_same, no_entry) /* wrong_state */
	:: row == reversed       -> becomes(refused, reversed, no_entry, order_same, no_entry) /* wrong_state */
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_refund_guard() {
	if
	:: row == none           -> becomes(applied, accepted, payout_entry, reserves, refund_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_refund_full_guard() {
	if
	:: row == none           -> becomes(applied, none, no_entry, order_same, refund_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_refund_again_guard() {
	if
	:: row == none           -> becomes(already, accepted, payout_entry, reserves, no_entry)
	:: row == accepted       -> becomes(already, accepted, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_refund_again_full_guard() {
	if
	:: row == none           -> becomes(already, none, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_refund_late_guard() {
	if
	:: row == none           -> becomes(already, none, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_success_guard() {
	if
	:: row == none           -> becomes(applied, none, no_entry, order_same, reclaim_entry)
	:: row == accepted       -> becomes(applied, canceled, return_entry, frees, reclaim_entry)
	:: row == unknown        -> becomes(applied, unknown, no_entry, order_same, reclaim_entry)
	:: row == unknown_again  -> becomes(applied, unknown_again, no_entry, order_same, reclaim_entry)
	:: row == pending        -> becomes(applied, pending, no_entry, order_same, reclaim_entry)
	:: row == succeeded      -> becomes(applied, succeeded, no_entry, order_same, reclaim_entry)
	:: row == failed         -> becomes(applied, failed, no_entry, order_same, reclaim_entry)
	:: row == failed_unnamed -> becomes(applied, failed_unnamed, no_entry, order_same, reclaim_entry)
	:: row == canceled       -> becomes(applied, canceled, no_entry, order_same, reclaim_entry)
	:: row == reversed       -> becomes(applied, reversed, no_entry, order_same, reclaim_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}

inline job_success_late_guard() {
	if
	:: row == none           -> becomes(already, none, no_entry, order_same, no_entry)
	:: row == unknown        -> becomes(already, unknown, no_entry, order_same, no_entry)
	:: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)
	:: row == pending        -> becomes(already, pending, no_entry, order_same, no_entry)
	:: row == succeeded      -> becomes(already, succeeded, no_entry, order_same, no_entry)
	:: row == failed         -> becomes(already, failed, no_entry, order_same, no_entry)
	:: row == failed_unnamed -> becomes(already, failed_unnamed, no_entry, order_same, no_entry)
	:: row == canceled       -> becomes(already, canceled, no_entry, order_same, no_entry)
	:: row == reversed       -> becomes(already, reversed, no_entry, order_same, no_entry)
	:: else -> assert(false) /* it cannot be */
	fi
}
