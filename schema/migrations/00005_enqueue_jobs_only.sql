-- +goose Up

-- The role reclaim_enqueue adds jobs and nothing else: the starts of refunds are the accepting statement's own. Rows are
-- every other role's as before.
CREATE POLICY every_row ON reclaim.outbox TO reclaim_app USING (true) WITH CHECK (true);
CREATE POLICY seen ON reclaim.outbox FOR SELECT TO reclaim_support USING (true);
CREATE POLICY jobs_only ON reclaim.outbox FOR INSERT TO reclaim_enqueue WITH CHECK (kind = 'start_job');
ALTER TABLE reclaim.outbox ENABLE ROW LEVEL SECURITY;
