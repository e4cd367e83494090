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

/// What became of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It has all batches up to this one.
    UpTo(BatchMark),
    /// It has to be made again: there is none, it is damaged, or lacks too many batches.
    Unusable,
    /// It has batches that the database lacks, which came to another state in their place.
    Diverged,
}

/// Brings the replica at `path` up to date.
///
/// # Errors
/// The database does not answer, the disk is full, or another process has the replica.
pub async fn catch_up(
    client: &mut Client,
    (schema, id): (&SchemaName, i64),
    (path, host): (&Path, &Host),
) -> Result<Followed, SessionError> {
    let Some((mut replica, mark)) = FollowingReplica::open(path, host)? else {
        return Ok(Followed::Unusable);
    };
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
) -> Result<Followed, SessionError> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let Some(row) = transaction.query_opt(&statement::last_batch(schema), &[&id]).await? else {
        return Ok(Followed::Unusable);
    };
    let last = BatchMark { seq: row.get("seq"), stamp: row.get("stamp") };
    if last == mark {
        return Ok(Followed::UpTo(mark));
    }
    let changed = match changes(&transaction, (schema, id), mark, last).await? {
        Ok(changed) => changed,
        Err(why) => return Ok(why),
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
        Ok(()) => Ok(Followed::UpTo(last)),
        // The replica has rows that it should not have, or is damaged.
        Err(SessionError::Store(error)) if error.kind.leaves_doubt() => {
            tracing::debug!(%error, "the replica is made again");
            Ok(Followed::Unusable)
        }
        Err(error) => Err(error),
    }
}

/// Which rows the batches after `mark` have changed, up to `last`, or why that is not known.
async fn changes(
    transaction: &Transaction<'_>,
    (schema, id): (&SchemaName, i64),
    mark: BatchMark,
    last: BatchMark,
) -> Result<Result<RowsToFollow, Followed>, SessionError> {
    if last.seq <= mark.seq {
        return Ok(Err(Followed::Diverged));
    }
    if last.seq - mark.seq > KNOWN_BATCHES {
        return Ok(Err(Followed::Unusable));
    }
    let text = transaction.prepare(&statement::changes_from(schema)).await?;
    let mut changed = RowsToFollow::default();
    let mut next = mark.seq;
    while next <= last.seq {
        let batches = transaction.query(&text, &[&id, &next, &PAGE_BATCHES]).await?;
        if batches.is_empty() {
            return Ok(Err(Followed::Unusable));
        }
        for batch in batches {
            let found = BatchMark { seq: batch.get("seq"), stamp: batch.get("stamp") };
            if found.seq == mark.seq && found != mark {
                return Ok(Err(Followed::Diverged));
            }
            if found.seq != next {
                return Ok(Err(Followed::Unusable));
            }
            if next > mark.seq && changed.add(batch.get("changed")).is_err() {
                return Ok(Err(Followed::Unusable));
            }
            next += 1;
        }
        if changed.count() > MAX_ROWS {
            return Ok(Err(Followed::Unusable));
        }
    }
    Ok(Ok(changed))
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
