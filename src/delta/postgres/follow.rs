//! Brings a replica up to date by the batches that it lacks, instead of by all rows.

use std::collections::BTreeSet;
use std::path::Path;

use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::change::RowsToFollow;
use super::session::{SessionError, page_rows, table_rows};
use super::statement;
use super::url::SchemaName;
use crate::delta::sqlite::{BatchMark, FollowingReplica, Host, SessionTable};

/// Batches whose changes the database knows: a replica that lacks more is made again.
pub(super) const KNOWN_BATCHES: i64 = 1 << 16;

/// Batches that are read at once.
const PAGE_BATCHES: i64 = 1024;

/// The most rows that are brought up to date one by one; of more, all rows are read in their order,
/// which is faster.
const MAX_ROWS: usize = 500_000;

/// Brings the replica at `path` up to date; returns the last batch that it has then, or `None` if
/// it has to be made again: it is none of this session, is of another state of the database, or
/// lacks too much.
///
/// # Errors
/// The database does not answer, the disk is full, or another process has the replica.
pub async fn catch_up(
    client: &mut Client,
    (schema, id): (&SchemaName, i64),
    (path, host): (&Path, &Host),
) -> Result<Option<BatchMark>, SessionError> {
    let Some((mut replica, mark)) = FollowingReplica::open(path, host)? else { return Ok(None) };
    follow(client, (schema, id), &mut replica, mark).await
}

/// As [`catch_up`], for a replica that is open and has the batches up to `mark`.
///
/// # Errors
/// As [`catch_up`].
pub async fn follow(
    client: &mut Client,
    (schema, id): (&SchemaName, i64),
    replica: &mut FollowingReplica,
    mark: BatchMark,
) -> Result<Option<BatchMark>, SessionError> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let Some(row) = transaction.query_opt(&statement::last_batch(schema), &[&id]).await? else {
        return Ok(None);
    };
    let last = BatchMark { seq: row.get("seq"), stamp: row.get("stamp") };
    if last == mark {
        return Ok(Some(mark));
    }
    let Some(changed) = changes(&transaction, (schema, id), mark, last).await? else {
        return Ok(None);
    };
    let applied = async {
        replica.begin()?;
        for (table, ids) in changed.iter() {
            replica.delete(table, ids)?;
            insert(&transaction, (schema, id), (table, ids), replica).await?;
        }
        Ok::<_, SessionError>(replica.commit(last)?)
    };
    let applied = applied.await;
    match applied {
        Ok(()) => Ok(Some(last)),
        // The replica has rows that it should not have, or is damaged.
        Err(SessionError::Store(error)) if error.kind.leaves_doubt() => {
            tracing::debug!(%error, "the replica is made again");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Which rows the batches after `mark` have changed, up to `last`; `None` if the database does not
/// know it, or these are too many.
async fn changes(
    transaction: &Transaction<'_>,
    (schema, id): (&SchemaName, i64),
    mark: BatchMark,
    last: BatchMark,
) -> Result<Option<RowsToFollow>, SessionError> {
    if last.seq <= mark.seq || last.seq - mark.seq > KNOWN_BATCHES {
        return Ok(None);
    }
    let text = transaction.prepare(&statement::changes_from(schema)).await?;
    let mut changed = RowsToFollow::default();
    let mut next = mark.seq;
    while next <= last.seq {
        let batches = transaction.query(&text, &[&id, &next, &PAGE_BATCHES]).await?;
        if batches.is_empty() {
            return Ok(None);
        }
        for batch in batches {
            let found = BatchMark { seq: batch.get("seq"), stamp: batch.get("stamp") };
            if found.seq != next || (next == mark.seq && found != mark) {
                return Ok(None);
            }
            if next > mark.seq && changed.add(batch.get("changed")).is_err() {
                return Ok(None);
            }
            next += 1;
        }
        if changed.count() > MAX_ROWS {
            return Ok(None);
        }
    }
    Ok(Some(changed))
}

/// Writes the rows of a table that the database has among `ids`.
async fn insert(
    transaction: &Transaction<'_>,
    (schema, id): (&SchemaName, i64),
    (table, ids): (&'static SessionTable, &BTreeSet<i64>),
    replica: &mut FollowingReplica,
) -> Result<(), SessionError> {
    let text = transaction.prepare(&statement::read_rows(schema, table)).await?;
    let most = page_rows(table);
    let ids: Vec<i64> = ids.iter().copied().collect();
    for ids in ids.chunks(most) {
        let page = transaction.query(&text, &[&id, &ids]).await?;
        replica.insert(&table_rows(table, &page)?)?;
    }
    Ok(())
}
