//! The reply cache: a retransmitted call gets the reply of the first one, and is not carried
//! out again (RFC 1813 §4.5).
//!
//! A client retransmits when its connection broke before the reply came. Then the call comes
//! from the same address over another connection, with the same xid: that is the key, with a
//! checksum against accidents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        (self.client, self.xid, self.procedure, self.checksum).hash(&mut hasher);
        CallId(hasher.finish())
    }
}

impl Hash for Key {
    /// The checksum is over xid and procedure too, and a key is looked up several times. The client
    /// has its part in it: else one record from many addresses is in one place of the table.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.checksum);
        self.client.hash(state);
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
    /// With the way to whoever waits for the reply, if anybody does.
    in_progress: HashMap<Key, Option<watch::Sender<Option<Reply>>>>,
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
        let Inner { in_progress, done, .. } = &mut *self.lock();
        let place = match in_progress.entry(key) {
            Entry::Occupied(mut call) => {
                let sender = call.get_mut().get_or_insert_with(|| watch::Sender::new(None));
                return Entered::InProgress(Waiting(sender.subscribe()));
            }
            Entry::Vacant(place) => place,
        };
        // A peek: what counts for the order is when the reply was made, not when it was needed.
        if let Some((reply, made)) = done.peek(&key)
            && now.saturating_duration_since(*made) < self.max_age
        {
            return Entered::Done(reply.clone());
        }
        place.insert(None);
        Entered::New(Slot { cache: self, key, is_open: true })
    }

    /// Keeps a reply, in place of the oldest ones.
    fn store(&self, inner: &mut Inner, key: Key, reply: Reply, now: Instant) {
        inner.bytes += reply_bytes(&reply);
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
    /// Whether there is no reply yet.
    is_open: bool,
}

impl Slot<'_> {
    /// Hands the reply in, for whoever waits and for retransmissions to come; with `keep`
    /// false only for whoever waits.
    pub fn finish(mut self, reply: &Reply, keep: bool, now: Instant) {
        let waited_for = {
            let inner = &mut *self.cache.lock();
            if keep {
                self.cache.store(inner, self.key, reply.clone(), now);
            }
            inner.in_progress.remove(&self.key).flatten()
        };
        self.is_open = false;
        if let Some(sender) = waited_for {
            sender.send_replace(Some(reply.clone()));
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // Whoever waits is woken when nothing is locked any more.
            let _waited_for = self.cache.lock().in_progress.remove(&self.key);
        }
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
