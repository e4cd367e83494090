//! The reply cache (DRC): a retransmitted call gets the reply of its first transmission and is not
//! executed again (RFC 1813 §4.5).
//!
//! A client retransmits when its connection breaks before the reply arrives. The call then comes
//! from the same address with the same xid, over another connection. The key is therefore address,
//! xid, procedure, and a checksum over the whole call.
//!
//! While the first connection is open, an equal call over another one belongs to another program at
//! that address with equal xids: it is executed and gets a reply of its own. [`ConnectionLiveness`]
//! distinguishes the two cases. The key does not: a client reconnects from another port, and the
//! audit log stores the key's digest across restarts.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::limits::{Limits, MAX_EQUAL_CALLS, REPLY_CACHE_AGE, STRONG_CHECKSUM_ARGS_BYTES};
use super::liveness::ConnectionLiveness;
use crate::vfs::CallId;

/// An encoded reply: the record's bytes in segments.
pub type ReplySegments = Vec<Bytes>;

/// Identifies a call: two transmissions of one call have equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    checksum: u64,
}

impl CallKey {
    /// The key of the call in `record`, whose arguments begin at byte `args_at`.
    ///
    /// The checksum covers the whole record. It covers the data of a large WRITE by its CRC-32,
    /// which is faster than hashing a megabyte and detects a difference in these bytes alone.
    pub fn new(client: IpAddr, xid: u32, procedure: u32, record: &[u8], args_at: usize) -> Self {
        let end = record.len().min(args_at.saturating_add(STRONG_CHECKSUM_ARGS_BYTES));
        let (head, rest) = record.split_at(end);
        let mut hasher = siphasher::sip::SipHasher13::new();
        hasher.write(head);
        hasher.write_usize(record.len());
        if !rest.is_empty() {
            hasher.write_u32(crc32fast::hash(rest));
        }
        Self { client: client.to_canonical(), xid, procedure, checksum: hasher.finish() }
    }

    /// The key as one number, equal in every server process.
    pub fn digest(&self) -> CallId {
        let mut hasher = siphasher::sip::SipHasher13::new();
        (self.client, self.xid, self.procedure, self.checksum).hash(&mut hasher);
        CallId(hasher.finish())
    }
}

impl Hash for CallKey {
    /// The checksum already covers xid and procedure; a key is looked up several times, so the rest
    /// is left out. The client is included: otherwise equal records of many addresses collide.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.checksum);
        self.client.hash(state);
    }
}

/// What to do with a call.
pub enum CacheLookup<'a> {
    /// Execute it, and pass the reply to the slot.
    New(ReplySlot<'a>),
    /// It is being executed: wait for that reply.
    InProgress(Retransmission),
    /// It was executed: send this reply.
    Done(ReplySegments),
    /// An equal call came over this open connection. Wait for the connection to end, then look the
    /// call up again.
    MaybeRetransmission(Arc<ConnectionLiveness>),
}

/// One of several calls with equal keys, which came over different connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallSlot {
    key: CallKey,
    number: u8,
}

impl Hash for CallSlot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// A call that is being executed.
struct InProgress {
    from: Arc<ConnectionLiveness>,
    /// Sends the reply to waiting retransmissions, if there are any.
    waiting: Option<watch::Sender<Option<ReplySegments>>>,
}

/// A call that was executed.
struct CompletedCall {
    from: Arc<ConnectionLiveness>,
    reply: ReplySegments,
    made: Instant,
}

impl CompletedCall {
    /// Whether the reply is still kept.
    fn is_fresh(&self, max_age: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.made) < max_age
    }
}

/// Recent replies, and calls in progress. Bounds the replies by number, bytes and age; the limits
/// on requests in flight bound the calls in progress.
pub struct ReplyCache {
    inner: Mutex<CacheState>,
    max_entries: usize,
    max_bytes: usize,
}

struct CacheState {
    in_progress: HashMap<CallSlot, InProgress>,
    done: LruCache<CallSlot, CompletedCall>,
    bytes: usize,
    /// The number of places with a number above 0. While it is 0, a lookup checks one place only.
    extra_slots: usize,
    max_age: Duration,
}

/// The result of a lookup.
enum CacheMatch {
    /// The call in this place is the same call.
    Same(CallSlot),
    /// The call of this open connection may be the same call; no other is.
    MaybeRetransmission(Arc<ConnectionLiveness>),
    /// No call matches.
    None,
}

impl CacheState {
    /// The connection of the call in `place`; `None` if the place is free.
    fn from(&mut self, place: &CallSlot, now: Instant) -> Option<&mut Arc<ConnectionLiveness>> {
        if let Some(call) = self.in_progress.get_mut(place) {
            return Some(&mut call.from);
        }
        let done = self.done.peek_mut(place)?;
        done.is_fresh(self.max_age, now).then_some(&mut done.from)
    }

    /// The places of a key that may be occupied.
    fn places(&self, key: CallKey) -> impl Iterator<Item = CallSlot> + use<> {
        let count = if self.extra_slots == 0 { 1 } else { MAX_EQUAL_CALLS };
        (0..count).map(move |number| CallSlot { key, number })
    }

    /// Finds the call that `from` retransmits. A call from the port of `from` takes precedence over
    /// one of a connection that has ended.
    fn find(&mut self, key: CallKey, from: &ConnectionLiveness, now: Instant) -> CacheMatch {
        let mut found = CacheMatch::None;
        for place in self.places(key) {
            match self.from(&place, now) {
                Some(other) if other.is_at_port_of(from) => return CacheMatch::Same(place),
                Some(other) if other.has_ended() => {
                    if !matches!(found, CacheMatch::Same(_)) {
                        found = CacheMatch::Same(place);
                    }
                }
                Some(other) if matches!(found, CacheMatch::None) => {
                    found = CacheMatch::MaybeRetransmission(Arc::clone(other));
                }
                Some(_) | None => {}
            }
        }
        found
    }

    /// A free place of a key; `None` if all are occupied.
    fn free(&mut self, key: CallKey, now: Instant) -> Option<CallSlot> {
        let places = (0..MAX_EQUAL_CALLS).map(|number| CallSlot { key, number });
        places.into_iter().find(|place| self.from(place, now).is_none())
    }

    /// Answers a retransmission. The call now belongs to the new connection: while that is open, an
    /// equal call over a third one belongs to another program.
    fn again<'a>(&mut self, place: CallSlot, from: &Arc<ConnectionLiveness>) -> CacheLookup<'a> {
        if let Some(call) = self.in_progress.get_mut(&place) {
            call.from = Arc::clone(from);
            let sender = call.waiting.get_or_insert_with(|| watch::Sender::new(None));
            return CacheLookup::InProgress(Retransmission(sender.subscribe()));
        }
        // Peeks: entries are evicted by age, not by use.
        let reply = self.done.peek_mut(&place).map(|done| {
            done.from = Arc::clone(from);
            done.reply.clone()
        });
        CacheLookup::Done(reply.unwrap_or_default())
    }

    /// Updates `higher` for a place that became free.
    fn count_free(&mut self, place: CallSlot) {
        self.extra_slots -= usize::from(place.number > 0);
    }
}

impl ReplyCache {
    /// Makes an empty cache.
    pub fn new(limits: &Limits) -> Self {
        let (in_progress, done, max_age) = (HashMap::new(), LruCache::unbounded(), REPLY_CACHE_AGE);
        let inner = CacheState { in_progress, done, bytes: 0, extra_slots: 0, max_age };
        Self {
            inner: Mutex::new(inner),
            max_entries: limits.reply_cache_entries,
            max_bytes: limits.reply_cache_bytes,
        }
    }

    /// The number of replies, and their size in bytes.
    pub fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.done.len(), inner.bytes)
    }

    /// Looks a call up, and records it as in progress if it is new.
    pub fn enter(
        &self,
        key: CallKey,
        from: &Arc<ConnectionLiveness>,
        now: Instant,
    ) -> CacheLookup<'_> {
        self.enter_as(key, from, now, false)
    }

    /// Like [`ReplyCache::enter`], but treats a call that is [`CacheLookup::MaybeRetransmission`]
    /// as new.
    pub fn enter_as_new(
        &self,
        key: CallKey,
        from: &Arc<ConnectionLiveness>,
        now: Instant,
    ) -> CacheLookup<'_> {
        self.enter_as(key, from, now, true)
    }

    fn enter_as(
        &self,
        key: CallKey,
        from: &Arc<ConnectionLiveness>,
        now: Instant,
        is_other: bool,
    ) -> CacheLookup<'_> {
        let inner = &mut *self.lock();
        let place = match inner.find(key, from, now) {
            CacheMatch::Same(place) => return inner.again(place, from),
            CacheMatch::MaybeRetransmission(other) if !is_other => {
                return CacheLookup::MaybeRetransmission(other);
            }
            CacheMatch::MaybeRetransmission(_) => inner.free(key, now),
            CacheMatch::None => Some(CallSlot { key, number: 0 }),
        };
        if let Some(place) = place {
            inner.extra_slots += usize::from(place.number > 0);
            let call = InProgress { from: Arc::clone(from), waiting: None };
            inner.in_progress.insert(place, call);
        }
        CacheLookup::New(ReplySlot { cache: self, place })
    }

    /// Stores a reply, and evicts the oldest ones beyond the bounds.
    fn store(&self, inner: &mut CacheState, place: CallSlot, done: CompletedCall) {
        let now = done.made;
        inner.bytes += reply_bytes(&done.reply);
        if let Some((old_place, old)) = inner.done.push(place, done) {
            inner.bytes -= reply_bytes(&old.reply);
            inner.count_free(old_place);
        }
        while inner.done.len() > self.max_entries
            || inner.bytes > self.max_bytes
            || inner.done.peek_lru().is_some_and(|(_, done)| !done.is_fresh(inner.max_age, now))
        {
            let Some((old_place, old)) = inner.done.pop_lru() else { break };
            inner.bytes -= reply_bytes(&old.reply);
            inner.count_free(old_place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // No code under this lock panics between two related changes.
        self.inner.lock()
    }
}

/// A call in progress. If dropped without a reply, the call is forgotten.
pub struct ReplySlot<'a> {
    cache: &'a ReplyCache,
    /// `None` once there is a reply, or if too many equal calls are cached already.
    place: Option<CallSlot>,
}

impl ReplySlot<'_> {
    /// Stores the reply for retransmissions; if `keep` is false, only for those that wait now.
    pub fn finish(mut self, reply: &ReplySegments, keep: bool, now: Instant) {
        let Some(place) = self.place.take() else { return };
        let waiting = {
            let inner = &mut *self.cache.lock();
            let Some(InProgress { from, waiting }) = inner.in_progress.remove(&place) else {
                return;
            };
            match keep {
                true => {
                    self.cache.store(
                        inner,
                        place,
                        CompletedCall { from, reply: reply.clone(), made: now },
                    );
                }
                false => inner.count_free(place),
            }
            waiting
        };
        if let Some(sender) = waiting {
            sender.send_replace(Some(reply.clone()));
        }
    }
}

impl Drop for ReplySlot<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let call = {
            let mut inner = self.cache.lock();
            inner.count_free(place);
            inner.in_progress.remove(&place)
        };
        // Wakes the waiting retransmissions after the lock is released.
        drop(call);
    }
}

/// A retransmission of a call in progress.
pub struct Retransmission(watch::Receiver<Option<ReplySegments>>);

impl Retransmission {
    /// Waits for the reply; `None` if the call ends without one.
    pub async fn reply(mut self) -> Option<ReplySegments> {
        let reply = self.0.wait_for(Option::is_some).await.ok()?;
        reply.clone()
    }
}

fn reply_bytes(reply: &ReplySegments) -> usize {
    reply.iter().map(Bytes::len).sum()
}
