//! The reply cache: a retransmitted call gets the reply of the first one, and is not carried
//! out again (RFC 1813 §4.5).
//!
//! A client retransmits when its connection broke before the reply came. Then the call comes
//! from the same address over another connection, with the same xid: that is the key, with a
//! checksum against accidents.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lru::LruCache;
use tokio::sync::watch;

use super::limits::{CHECKSUM_ARGS_BYTES, Limits, REPLY_CACHE_AGE};
use crate::vfs::CallId;

/// A reply as it goes out: the record's bytes in segments.
pub type Reply = Vec<Bytes>;

/// What makes two calls the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    checksum: u64,
}

impl Key {
    /// The key of the call in `record`, whose arguments begin at byte `args_at`.
    pub fn new(client: IpAddr, xid: u32, procedure: u32, record: &[u8], args_at: usize) -> Self {
        let end = record.len().min(args_at.saturating_add(CHECKSUM_ARGS_BYTES));
        let mut hasher = siphasher::sip::SipHasher13::new();
        hasher.write(&record[..end]);
        hasher.write_usize(record.len());
        Self { client: client.to_canonical(), xid, procedure, checksum: hasher.finish() }
    }

    /// All of it in a number, which is the same in every server.
    pub fn digest(&self) -> CallId {
        let mut hasher = siphasher::sip::SipHasher13::new();
        self.hash(&mut hasher);
        CallId(hasher.finish())
    }
}

/// What to do with a call.
pub enum Entered<'a> {
    /// Carry it out, and hand the reply in.
    New(Slot<'a>),
    /// It is being carried out: wait for the same reply.
    InProgress(Waiting),
    /// It was carried out: this was the reply.
    Done(Reply),
}

/// Replies of late, and calls that will have one. Bounded in replies, bytes and age; calls in
/// progress are bounded by what may be in flight.
pub struct ReplyCache {
    inner: Mutex<Inner>,
    max_entries: usize,
    max_bytes: usize,
    max_age: Duration,
}

struct Inner {
    in_progress: HashMap<Key, watch::Receiver<Option<Reply>>>,
    done: LruCache<Key, (Reply, Instant)>,
    bytes: usize,
}

impl ReplyCache {
    /// Makes an empty cache.
    pub fn new(limits: &Limits) -> Self {
        let inner = Inner { in_progress: HashMap::new(), done: LruCache::unbounded(), bytes: 0 };
        Self {
            inner: Mutex::new(inner),
            max_entries: limits.reply_cache_entries,
            max_bytes: limits.reply_cache_bytes,
            max_age: REPLY_CACHE_AGE,
        }
    }

    /// Looks a call up, and notes it as in progress if it is new. `now` is the time.
    pub fn enter(&self, key: Key, now: Instant) -> Entered<'_> {
        let mut inner = self.lock();
        if let Some(waiting) = inner.in_progress.get(&key) {
            return Entered::InProgress(Waiting(waiting.clone()));
        }
        // A peek: what counts for the order is when the reply was made, not when it was needed.
        if let Some((reply, made)) = inner.done.peek(&key)
            && now.saturating_duration_since(*made) < self.max_age
        {
            return Entered::Done(reply.clone());
        }
        let (sender, receiver) = watch::channel(None);
        inner.in_progress.insert(key, receiver);
        Entered::New(Slot { cache: self, key, sender })
    }

    fn store(&self, key: Key, reply: Reply, now: Instant) {
        let bytes = reply_bytes(&reply);
        let mut inner = self.lock();
        inner.bytes += bytes;
        if let Some((_, (old, _))) = inner.done.push(key, (reply, now)) {
            inner.bytes -= reply_bytes(&old);
        }
        while inner.done.len() > self.max_entries
            || inner.bytes > self.max_bytes
            || inner
                .done
                .peek_lru()
                .is_some_and(|(_, (_, made))| now.saturating_duration_since(*made) >= self.max_age)
        {
            let Some((_, (old, _))) = inner.done.pop_lru() else { break };
            inner.bytes -= reply_bytes(&old);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in progress. Dropped without a reply, the call counts as never seen.
pub struct Slot<'a> {
    cache: &'a ReplyCache,
    key: Key,
    sender: watch::Sender<Option<Reply>>,
}

impl Slot<'_> {
    /// Hands the reply in, for whoever waits and for retransmissions to come; with `keep`
    /// false only for whoever waits.
    pub fn finish(self, reply: &Reply, keep: bool, now: Instant) {
        if keep {
            self.cache.store(self.key, reply.clone(), now);
        }
        self.sender.send_replace(Some(reply.clone()));
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.cache.lock().in_progress.remove(&self.key);
    }
}

/// A retransmission of a call in progress.
pub struct Waiting(watch::Receiver<Option<Reply>>);

impl Waiting {
    /// Waits for the reply; `None` if there won't be one.
    pub async fn reply(mut self) -> Option<Reply> {
        let reply = self.0.wait_for(Option::is_some).await.ok()?;
        reply.clone()
    }
}

fn reply_bytes(reply: &Reply) -> usize {
    reply.iter().map(Bytes::len).sum()
}
