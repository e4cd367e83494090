//! Keeps batches of rows in the database, whatever happens to the connection.
//!
//! **Q1: a batch is kept once, or not at all.** Its statement is one transaction, which moves the
//! session's `seq` from n − 1 to n and sets `stamp` to a random number. When no answer comes, the
//! two say whether the batch was kept.
//!
//! **Q2: nothing is kept for a server without the lease.** The statement checks the epoch in the
//! same transaction.
//!
//! **Q3: the caller learns of a failure only if the batch was not kept and never will be.** A
//! statement without an answer may still run: the number of its batch is then used up, so that it
//! finds another `seq`. If another server has taken the session by then, or the lease was given up,
//! [`Shipper::keep`] fails with [`StoreErrorKind::InDoubt`], and the call is never answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Statement};

use super::change::changed_rows;
use super::connect::{connect, words};
use super::follow::KNOWN_BATCHES;
use super::lease::{HeldLease, LeaseTime, WENT_BACK};
use super::statement::{self, BATCH_PARAMETERS, TouchedTable};
use super::url::SchemaName;
use crate::counters::COUNTERS;
use crate::delta::sqlite::{BatchMark, CellColumn, TableRows, session_tables};
use crate::delta::{Result, StoreError, StoreErrorKind};

/// The shortest and the longest pause before a batch that met another transaction is sent again.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The shortest and the longest pause before the database is looked for again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The longest time for a statement to be answered before its connection is given up. The first is
/// the lease's term: another server may have the database's address now.
const MAX_PATIENCE: Duration = Duration::from_secs(30);

/// Batches after which the database forgets the changes of old ones.
const FORGET_AFTER: i64 = 1024;

/// Sets of touched tables whose statements a connection keeps prepared.
const MAX_PREPARED: usize = 64;

/// A session in a database, as its holder sees it.
#[derive(Debug, Clone)]
pub struct HeldSession {
    /// The database.
    pub connection: Config,
    /// The schema.
    pub schema: SchemaName,
    /// The session's number.
    pub id: i64,
    /// The lease.
    pub lease: Arc<HeldLease>,
}

/// Sends the batches of one session.
pub struct Shipper {
    session: HeldSession,
    runtime: Handle,
    /// The last batch that was kept.
    mark: BatchMark,
    link: Option<Link>,
}

/// A connection with its prepared statements.
struct Link {
    client: Client,
    prepared: HashMap<Vec<TouchedTable>, Statement>,
}

/// What became of one attempt.
enum Attempt {
    Kept,
    /// It was answered, and not kept: another epoch, or a batch of this number was kept before.
    NotTaken,
    /// It was not kept, and may be sent again.
    Again(StoreError),
    /// It was not kept, for a reason that stays.
    Refused(StoreError),
    /// No answer: it may be kept, also later.
    Unknown,
}

/// What the session's row says.
enum Fate {
    /// The batch that was kept last.
    Kept(BatchMark),
    Lost,
    /// Kept batches are missing.
    WentBack,
    /// The row cannot be read now.
    Unknown,
}

/// What is not known of a batch.
struct Doubt {
    /// Whether a statement that was not answered may still run.
    may_run: bool,
    /// Whether a statement may be on its way.
    is_sent: bool,
    /// An empty batch that is to use up the number of this one, so that what still runs finds
    /// another number; with the error of the batch.
    void: Option<(BatchMark, StoreError)>,
    paused: Duration,
    /// The time for the next statement to be answered.
    patience: Duration,
}

impl Doubt {
    /// Nothing was sent yet.
    fn none(term: Duration) -> Self {
        let patience = term.min(MAX_PATIENCE);
        Self { may_run: false, is_sent: false, void: None, paused: Duration::ZERO, patience }
    }

    fn void_mark(&self) -> Option<BatchMark> {
        self.void.as_ref().map(|(mark, _)| *mark)
    }

    /// Fails if the batch was not kept for certain; makes sure of it otherwise.
    fn give_up(&mut self, error: StoreError, void: BatchMark) -> Result<()> {
        if !self.may_run {
            return Err(error);
        }
        self.void.get_or_insert((void, error));
        Ok(())
    }

    async fn pause(&mut self) {
        self.paused = (self.paused * 2).clamp(RETRY.0, RETRY.1);
        tokio::time::sleep(jittered(self.paused)).await;
    }
}

impl Shipper {
    /// A shipper of the batches after the one that `mark` names.
    pub fn new(session: HeldSession, runtime: Handle, mark: BatchMark) -> Self {
        Self { session, runtime, mark, link: None }
    }

    /// Closes the connection, until the next batch.
    pub fn rest(&mut self) {
        self.link = None;
    }

    /// The mark for the next batch.
    pub fn next_mark(&self) -> BatchMark {
        self.mark.next()
    }

    /// Keeps a batch, with a mark from [`Self::next_mark`]. Blocks; must not run on a runtime
    /// thread.
    ///
    /// # Errors
    /// The batch was not kept, and will not be: [`StoreErrorKind::Full`],
    /// [`StoreErrorKind::Busy`] if the lease ended while other transactions were in the way, or
    /// [`StoreErrorKind::Lost`] if another server has the session. With
    /// [`StoreErrorKind::InDoubt`], another server has it, perhaps with the batch.
    pub fn keep(&mut self, mark: BatchMark, rows: &[TableRows]) -> Result<()> {
        let (runtime, lease) = (self.runtime.clone(), Arc::clone(&self.session.lease));
        let begun = Instant::now();
        lease.set_shipping(true);
        let kept = runtime.block_on(self.keep_on(mark, BatchToSend::new(rows)));
        lease.set_shipping(false);
        if kept.is_ok() {
            COUNTERS.database.commits.observe_time(begun.elapsed());
        }
        kept
    }

    /// Keeps a batch; ends at once when the lease is lost.
    async fn keep_on(&mut self, mark: BatchMark, batch: BatchToSend<'_>) -> Result<()> {
        let lease = Arc::clone(&self.session.lease);
        let mut doubt = Doubt::none(lease.term());
        let lost = tokio::select! {
            biased;
            kept = self.keep_or_wait(mark, batch, &mut doubt) => return kept,
            reason = lease.until_lost() => reason,
        };
        // A statement may be on its way.
        self.link = None;
        let kind = if doubt.is_sent { StoreErrorKind::InDoubt } else { StoreErrorKind::Lost };
        Err(StoreError::new(kind, lost))
    }

    async fn keep_or_wait(
        &mut self,
        mark: BatchMark,
        batch: BatchToSend<'_>,
        doubt: &mut Doubt,
    ) -> Result<()> {
        loop {
            let (sent, sent_mark) = (LeaseTime::now(), doubt.void_mark().unwrap_or(mark));
            doubt.is_sent = true;
            let nothing = BatchToSend::new(&[]);
            let to_send = if doubt.void.is_some() { &nothing } else { &batch };
            let kept = match self.attempt(sent_mark, to_send, doubt.patience).await {
                Attempt::Kept => {
                    self.session.lease.renewed(sent);
                    sent_mark
                }
                // A renewal by a statement without an answer is not trusted: its time is not known.
                Attempt::NotTaken => self.settle(doubt).await?,
                Attempt::Unknown => {
                    doubt.may_run = true;
                    // It may be slow: each further one waits for the one before.
                    doubt.patience = MAX_PATIENCE.min(doubt.patience * 2);
                    let kept = self.settle(doubt).await?;
                    COUNTERS.database.doubts.add(1);
                    kept
                }
                Attempt::Again(error) => {
                    doubt.is_sent = doubt.may_run;
                    COUNTERS.database.retries.add(1);
                    self.wait_or_give_up(doubt, error).await?;
                    continue;
                }
                Attempt::Refused(error) => {
                    doubt.give_up(error, self.mark.next())?;
                    continue;
                }
            };
            match doubt.void.take() {
                _ if kept == mark => {
                    self.moved_to(mark);
                    return Ok(());
                }
                Some((void, error)) if kept == void => {
                    self.moved_to(void);
                    return Err(error);
                }
                void => doubt.void = void,
            }
            if kept != self.mark {
                return Err(self.lost(doubt, "another program has changed the session"));
            }
            doubt.pause().await;
        }
    }

    /// The database has this batch as its last one.
    fn moved_to(&mut self, mark: BatchMark) {
        self.mark = mark;
        self.session.lease.kept(mark.seq);
    }

    /// Waits before the next attempt, or gives the batch up when the lease has ended.
    async fn wait_or_give_up(&self, doubt: &mut Doubt, error: StoreError) -> Result<()> {
        if !self.session.lease.is_valid(LeaseTime::now()) {
            doubt.give_up(error, self.mark.next())?;
        }
        doubt.pause().await;
        Ok(())
    }

    async fn attempt(
        &mut self,
        mark: BatchMark,
        batch: &BatchToSend<'_>,
        patience: Duration,
    ) -> Attempt {
        let session = self.session.clone();
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => return Attempt::Again(error),
        };
        let sent = link.send(batch, &session, mark);
        let Ok(done) = tokio::time::timeout(patience, sent).await else {
            self.link = None;
            return Attempt::Unknown;
        };
        match done {
            Ok(1) => {
                if mark.seq % FORGET_AFTER == 0 {
                    link.forget_changes(&session, mark).await;
                }
                Attempt::Kept
            }
            Ok(_) => Attempt::NotTaken,
            Err(error) => match error.code() {
                Some(code) => {
                    if is_of_connection(code) {
                        self.link = None;
                    }
                    answered(code, &error)
                }
                // Not sent.
                None if !link.client.is_closed() => Attempt::Refused(StoreError::io(words(&error))),
                None => {
                    self.link = None;
                    Attempt::Unknown
                }
            },
        }
    }

    /// Finds out which batch was kept last; waits until that is known.
    ///
    /// # Errors
    /// As [`Self::lost`].
    async fn settle(&mut self, doubt: &Doubt) -> Result<BatchMark> {
        let mut pause = RECONNECT.0;
        loop {
            let reason = match self.fate().await {
                Fate::Kept(mark) => return Ok(mark),
                Fate::Lost => "another server has taken the session",
                Fate::WentBack => WENT_BACK,
                Fate::Unknown => {
                    tokio::time::sleep(jittered(pause)).await;
                    pause = RECONNECT.1.min(pause * 2);
                    continue;
                }
            };
            return Err(self.lost(doubt, reason));
        }
    }

    /// Ends the lease. [`StoreErrorKind::Lost`]: the batch was not kept;
    /// [`StoreErrorKind::InDoubt`]: it may have been kept before.
    fn lost(&self, doubt: &Doubt, reason: &'static str) -> StoreError {
        self.session.lease.lose(reason);
        let kind = if doubt.may_run { StoreErrorKind::InDoubt } else { StoreErrorKind::Lost };
        StoreError::new(kind, reason)
    }

    async fn fate(&mut self) -> Fate {
        let id = self.session.id;
        let text = statement::last_batch(&self.session.schema);
        let patience = MAX_PATIENCE.min(self.session.lease.term());
        let Ok(link) = self.link().await else { return Fate::Unknown };
        let parameters: [&(dyn ToSql + Sync); 1] = [&id];
        let read = link.client.query_opt(&text, &parameters);
        let row = match tokio::time::timeout(patience, read).await {
            Ok(Ok(row)) => row,
            Ok(Err(_)) | Err(_) => {
                self.link = None;
                return Fate::Unknown;
            }
        };
        let Some(row) = row else { return Fate::Lost };
        let (epoch, found): (i64, _) =
            (row.get(0), BatchMark { seq: row.get(1), stamp: row.get(2) });
        match found {
            _ if epoch < self.session.lease.epoch() => Fate::WentBack,
            _ if epoch > self.session.lease.epoch() => Fate::Lost,
            found if found.seq < self.mark.seq => Fate::WentBack,
            found => Fate::Kept(found),
        }
    }

    /// The connection, or a new one.
    async fn link(&mut self) -> Result<&mut Link> {
        if self.link.as_ref().is_none_or(|link| link.client.is_closed()) {
            let client = connect(&self.session.connection, &self.runtime).await;
            let client = client.map_err(|error| {
                tracing::warn!(%error, "the database cannot be reached");
                StoreError::busy(error.to_string())
            })?;
            self.link = Some(Link { client, prepared: HashMap::new() });
        }
        self.link.as_mut().ok_or_else(|| StoreError::busy("there is no connection"))
    }
}

/// What an answer of the database with an error means.
fn answered(code: &SqlState, error: &tokio_postgres::Error) -> Attempt {
    let text = words(error);
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            Attempt::Again(StoreError::busy(text))
        }
        SqlState::DISK_FULL => Attempt::Refused(StoreError::full(text)),
        // The statement may have been committed before the server said so.
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW => {
            Attempt::Unknown
        }
        // Statement completion unknown.
        SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Attempt::Unknown,
        _ if class(code) == "08" => Attempt::Unknown,
        // Out of memory, also for locks; too many connections.
        _ if class(code) == "53" => Attempt::Again(StoreError::busy(text)),
        // What people can change: rights, a missing table, a server that only reads, a limit of
        // time, a lock that another program has, an I/O error there.
        _ if ["25", "26", "42", "55", "57", "58", "XX"].contains(&class(code)) => {
            Attempt::Refused(StoreError::busy(text))
        }
        _ => Attempt::Refused(StoreError::io(text)),
    }
}

/// The first two characters of a code.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether another connection may not have the error: another server takes changes now, or the
/// statement was prepared elsewhere.
fn is_of_connection(code: &SqlState) -> bool {
    ["25", "26"].contains(&class(code))
}

/// A pause that differs between servers: the half to the whole of `pause`.
fn jittered(pause: Duration) -> Duration {
    let part = getrandom::u32().unwrap_or(u32::MAX) % 1024;
    pause / 2 + pause / 2048 * part
}

/// The statement and the parameters of a batch.
pub(super) struct BatchToSend<'a> {
    pub(super) touched: Vec<TouchedTable>,
    /// Which rows are changed, for replicas.
    pub(super) changed: Option<String>,
    pub(super) arrays: Vec<&'a (dyn ToSql + Sync)>,
}

impl<'a> BatchToSend<'a> {
    pub(super) fn new(rows: &'a [TableRows]) -> Self {
        Self { changed: Some(changed_rows(rows)), ..Self::touching(rows, false) }
    }

    /// As [`Self::new`], for a session that has no replica yet.
    pub(super) fn without_replicas(rows: &'a [TableRows]) -> Self {
        Self { changed: Some(changed_rows(&[])), ..Self::touching(rows, false) }
    }

    /// As [`Self::new`], for no session; with `all`, it also writes and deletes no
    /// rows of a table.
    pub(super) fn touching(rows: &'a [TableRows], all: bool) -> Self {
        let (mut touched, mut arrays) = (Vec::new(), Vec::new());
        for rows in rows {
            let table = session_tables().iter().position(|it| std::ptr::eq(it, rows.table));
            let Some(table) = table else { continue };
            let (has_rows, has_gone) = (all || !rows.ids.is_empty(), all || !rows.gone.is_empty());
            touched.push(TouchedTable { table, has_rows, has_gone });
            if has_rows {
                arrays.push(&rows.ids as &(dyn ToSql + Sync));
                let columns = rows.columns.iter().enumerate();
                arrays.extend(columns.filter(|(at, _)| rows.table.key != Some(*at)).map(
                    |(_, column)| match column {
                        CellColumn::Ints(values) => values as &(dyn ToSql + Sync),
                        CellColumn::Texts(values) => values as _,
                        CellColumn::Blobs(values) => values as _,
                    },
                ));
            }
            if has_gone {
                arrays.push(&rows.gone);
            }
        }
        Self { touched, changed: None, arrays }
    }
}

impl Link {
    /// Sends a batch; returns how many sessions took it.
    async fn send(
        &mut self,
        batch: &BatchToSend<'_>,
        session: &HeldSession,
        mark: BatchMark,
    ) -> std::result::Result<i64, tokio_postgres::Error> {
        if !self.prepared.contains_key(&batch.touched) {
            if self.prepared.len() >= MAX_PREPARED {
                self.prepared.clear();
            }
            let text = statement::batch(&session.schema, &batch.touched);
            let prepared = self.client.prepare(&text).await?;
            self.prepared.insert(batch.touched.clone(), prepared);
        }
        let statement = &self.prepared[&batch.touched];
        let epoch = session.lease.epoch();
        let mut all: Vec<&(dyn ToSql + Sync)> =
            Vec::with_capacity(BATCH_PARAMETERS + batch.arrays.len());
        all.extend([&session.id as &(dyn ToSql + Sync), &epoch, &mark.seq, &mark.stamp]);
        all.push(&batch.changed);
        all.extend_from_slice(&batch.arrays);
        Ok(self.client.query_one(statement, &all).await?.get(0))
    }

    /// Has the database forget the changes of batches long before `mark`.
    async fn forget_changes(&self, session: &HeldSession, mark: BatchMark) {
        let (text, last) = (statement::forget_changes(&session.schema), mark.seq - KNOWN_BATCHES);
        let parameters: [&(dyn ToSql + Sync); 2] = [&session.id, &last];
        // If it fails, the next time is soon.
        let forgotten = self.client.execute(&text, &parameters);
        let _ = tokio::time::timeout(session.lease.term() / 4, forgotten).await;
    }
}
