//! The reply cache: a retransmitted call gets the reply of the first one, and is not carried
//! out again (RFC 1813 §4.5).
//!
//! A client retransmits when its connection broke before the reply came. Then the call comes
//! from the same address over another connection, with the same xid: that is the key, with a
//! checksum over the whole call.
//!
//! While the first connection is open, an equal call over another one is that of another program
//! at the same address, whose xids happen to be the same: it is carried out, and has a reply of
//! its own. What tells the two apart is in [`Presence`], and not in the key: a client connects
//! again from another port, and the digest in the audit log outlives the server.

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
use super::presence::Presence;
use crate::vfs::CallId;

/// A reply as it goes out: the record's bytes in segments.
pub type ReplySegments = Vec<Bytes>;

/// What makes two calls the same call.
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
    /// All of the record is in the checksum. The data of a large WRITE is in it by its CRC-32: to
    /// hash a megabyte takes longer, and a change of these bytes alone is found all the same.
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

    /// All of it in a number, which is the same in every server.
    pub fn digest(&self) -> CallId {
        let mut hasher = siphasher::sip::SipHasher13::new();
        (self.client, self.xid, self.procedure, self.checksum).hash(&mut hasher);
        CallId(hasher.finish())
    }
}

impl Hash for CallKey {
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
    New(ReplySlot<'a>),
    /// It is being carried out: wait for the same reply.
    InProgress(Retransmission),
    /// It was carried out: this was the reply.
    Done(ReplySegments),
    /// An equal call came over this connection, which is open: wait for that connection to end,
    /// then look the call up again.
    Doubtful(Arc<Presence>),
}

/// The place of a call among those with the same key, which came over different connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallPlace {
    key: CallKey,
    number: u8,
}

impl Hash for CallPlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// A call that is being carried out.
struct InProgress {
    from: Arc<Presence>,
    /// The way to retransmissions that wait for the reply, if there are any.
    waiting: Option<watch::Sender<Option<ReplySegments>>>,
}

/// A call that was carried out.
struct CompletedCall {
    from: Arc<Presence>,
    reply: ReplySegments,
    made: Instant,
}

impl CompletedCall {
    /// Whether the reply is still kept.
    fn is_fresh(&self, max_age: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.made) < max_age
    }
}

/// Recent replies, and calls that will have one. Bounded in replies, bytes and age; calls in
/// progress are bounded by what may be in flight.
pub struct ReplyCache {
    inner: Mutex<CacheState>,
    max_entries: usize,
    max_bytes: usize,
}

struct CacheState {
    in_progress: HashMap<CallPlace, InProgress>,
    done: LruCache<CallPlace, CompletedCall>,
    bytes: usize,
    /// Places with a number above 0: without any, a key has one place to look at.
    higher: usize,
    max_age: Duration,
}

/// What is known of a call that comes.
enum CacheMatch {
    /// The call in this place is the same one.
    Same(CallPlace),
    /// The call of this open connection may be the same one; no other is.
    Doubtful(Arc<Presence>),
    /// None is.
    None,
}

impl CacheState {
    /// The connection of the call in a place; `None` if the place is free.
    fn from(&mut self, place: &CallPlace, now: Instant) -> Option<&mut Arc<Presence>> {
        if let Some(call) = self.in_progress.get_mut(place) {
            return Some(&mut call.from);
        }
        let done = self.done.peek_mut(place)?;
        done.is_fresh(self.max_age, now).then_some(&mut done.from)
    }

    /// The places of a key that may be taken.
    fn places(&self, key: CallKey) -> impl Iterator<Item = CallPlace> + use<> {
        let count = if self.higher == 0 { 1 } else { MAX_EQUAL_CALLS };
        (0..count).map(move |number| CallPlace { key, number })
    }

    /// Looks for a call of `key` that `from` sends again: one of its own port comes before one of
    /// a connection that has ended.
    fn find(&mut self, key: CallKey, from: &Presence, now: Instant) -> CacheMatch {
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
                    found = CacheMatch::Doubtful(Arc::clone(other));
                }
                Some(_) | None => {}
            }
        }
        found
    }

    /// A free place of a key; `None` where all are taken.
    fn free(&mut self, key: CallKey, now: Instant) -> Option<CallPlace> {
        let places = (0..MAX_EQUAL_CALLS).map(|number| CallPlace { key, number });
        places.into_iter().find(|place| self.from(place, now).is_none())
    }

    /// What a retransmission gets. The call is that of the new connection from here on: while
    /// this is open, an equal call over a third one is another program's.
    fn again<'a>(&mut self, place: CallPlace, from: &Arc<Presence>) -> Entered<'a> {
        if let Some(call) = self.in_progress.get_mut(&place) {
            call.from = Arc::clone(from);
            let sender = call.waiting.get_or_insert_with(|| watch::Sender::new(None));
            return Entered::InProgress(Retransmission(sender.subscribe()));
        }
        // A peek: what counts for the order is when the reply was made, not when it was needed.
        let reply = self.done.peek_mut(&place).map(|done| {
            done.from = Arc::clone(from);
            done.reply.clone()
        });
        Entered::Done(reply.unwrap_or_default())
    }

    /// Counts a place that is free again.
    fn count_free(&mut self, place: CallPlace) {
        self.higher -= usize::from(place.number > 0);
    }
}

impl ReplyCache {
    /// Makes an empty cache.
    pub fn new(limits: &Limits) -> Self {
        let (in_progress, done, max_age) = (HashMap::new(), LruCache::unbounded(), REPLY_CACHE_AGE);
        let inner = CacheState { in_progress, done, bytes: 0, higher: 0, max_age };
        Self {
            inner: Mutex::new(inner),
            max_entries: limits.reply_cache_entries,
            max_bytes: limits.reply_cache_bytes,
        }
    }

    /// Looks a call up, and notes it as in progress if it is new. `now` is the time.
    pub fn enter(&self, key: CallKey, from: &Arc<Presence>, now: Instant) -> Entered<'_> {
        self.enter_as(key, from, now, false)
    }

    /// Does the same with a call that is new if it is only [`Entered::Doubtful`].
    pub fn enter_beside(&self, key: CallKey, from: &Arc<Presence>, now: Instant) -> Entered<'_> {
        self.enter_as(key, from, now, true)
    }

    fn enter_as(
        &self,
        key: CallKey,
        from: &Arc<Presence>,
        now: Instant,
        is_other: bool,
    ) -> Entered<'_> {
        let inner = &mut *self.lock();
        let place = match inner.find(key, from, now) {
            CacheMatch::Same(place) => return inner.again(place, from),
            CacheMatch::Doubtful(other) if !is_other => return Entered::Doubtful(other),
            CacheMatch::Doubtful(_) => inner.free(key, now),
            CacheMatch::None => Some(CallPlace { key, number: 0 }),
        };
        if let Some(place) = place {
            inner.higher += usize::from(place.number > 0);
            let call = InProgress { from: Arc::clone(from), waiting: None };
            inner.in_progress.insert(place, call);
        }
        Entered::New(ReplySlot { cache: self, place })
    }

    /// Keeps a reply, in place of the oldest ones.
    fn store(&self, inner: &mut CacheState, place: CallPlace, done: CompletedCall) {
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
        // Nothing in here panics between two changes that belong together.
        self.inner.lock()
    }
}

/// A call in progress. Dropped without a reply, the call counts as never seen.
pub struct ReplySlot<'a> {
    cache: &'a ReplyCache,
    /// `None` once there is a reply, and where so many equal calls are kept that this one is not.
    place: Option<CallPlace>,
}

impl ReplySlot<'_> {
    /// Hands the reply in, for retransmissions; with `keep` false only for those that wait.
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
        // Retransmissions that wait are woken when nothing is locked any more.
        drop(call);
    }
}

/// A retransmission of a call in progress.
pub struct Retransmission(watch::Receiver<Option<ReplySegments>>);

impl Retransmission {
    /// Waits for the reply; `None` if there won't be one.
    pub async fn reply(mut self) -> Option<ReplySegments> {
        let reply = self.0.wait_for(Option::is_some).await.ok()?;
        reply.clone()
    }
}

fn reply_bytes(reply: &ReplySegments) -> usize {
    reply.iter().map(Bytes::len).sum()
}
