//! Which connection gives way where all places are taken and another client comes.
//!
//! The address with most connections gives way first, busy or not, and of its connections the
//! tenant with most. One that comes from an address with as many as any other displaces one of
//! its own address: so no address takes places from one that has fewer, and one that has none
//! always gets in. Clients behind one address (NAT, containers, loopback) are told apart by
//! tenant: the number that a program gives for what their calls are about.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::time::Duration;

/// Bits of an IPv6 address that tell clients apart: a client has all addresses below these.
const IPV6_PREFIX_BITS: u32 = 64;

/// What is known of an open connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionCandidate {
    /// Its number: those opened later have higher ones.
    pub(super) number: u64,
    /// What [`share_of`] makes of its address.
    pub(super) share: IpAddr,
    pub(super) tenant: Option<NonZeroU64>,
    /// Whether a valid call was answered.
    pub(super) has_valid_call: bool,
    /// The time since it was opened.
    pub(super) age: Duration,
    /// The time since its last call, or since it was opened.
    pub(super) idle: Duration,
}

/// The part of an address that has a share of its own.
pub(super) fn share_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::MAX << (u128::BITS - IPV6_PREFIX_BITS);
            Ipv6Addr::from_bits(address.to_bits() & network).into()
        }
        address => address,
    }
}

/// Selects the connection to close so that a client from address prefix `newcomer` can connect, by
/// its number; `None` only where none is open. The choice is from:
///
/// 1. any that had no valid call answered for `grace`, the oldest one first
/// 2. the address with most, if that has more than `newcomer` will have, or else the newcomer's
///    own address, if that has any, or else all
/// 3. among these, the tenant with most
/// 4. those without a valid call, the oldest one first, or else the one that is idle for longest
pub(super) fn choose(open: &[EvictionCandidate], newcomer: IpAddr, grace: Duration) -> Option<u64> {
    let is_silent = |one: &&EvictionCandidate| !one.has_valid_call && one.age >= grace;
    if let Some(silent) = open.iter().filter(is_silent).min_by_key(|one| one.number) {
        return Some(silent.number);
    }
    let by_share = count(open.iter().map(|one| one.share));
    let own = by_share.get(&newcomer).copied().unwrap_or_default();
    let most = by_share.values().copied().max().unwrap_or_default();
    let gives_way = |one: &&EvictionCandidate| match (most > own + 1, own) {
        (true, _) => by_share.get(&one.share) == Some(&most),
        (false, 0) => true,
        (false, _) => one.share == newcomer,
    };
    let chosen: Vec<&EvictionCandidate> = open.iter().filter(gives_way).collect();
    let by_tenant = count(chosen.iter().map(|one| one.tenant));
    let most = by_tenant.values().copied().max().unwrap_or_default();
    let chosen = || chosen.iter().filter(|one| by_tenant.get(&one.tenant) == Some(&most));
    let stranger = chosen().filter(|one| !one.has_valid_call).min_by_key(|one| one.number);
    let idle = || chosen().max_by_key(|one| (one.idle, u64::MAX - one.number));
    stranger.or_else(idle).map(|one| one.number)
}

fn count<T: Eq + Hash>(items: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn ip(text: &str) -> IpAddr {
        share_of(text.parse().unwrap())
    }

    /// Connections that had calls answered, in the order of opening: address, tenant, and the
    /// seconds that each is idle.
    fn known(of: &[(&str, u64, u64)]) -> Vec<EvictionCandidate> {
        let all = of.iter().zip(0..).map(|(&(address, tenant, idle), number)| EvictionCandidate {
            number,
            share: ip(address),
            tenant: NonZeroU64::new(tenant),
            has_valid_call: true,
            age: Duration::from_secs(100),
            idle: Duration::from_secs(idle),
        });
        all.collect()
    }

    fn chosen(open: &[EvictionCandidate], newcomer: &str) -> Option<u64> {
        choose(open, ip(newcomer), GRACE)
    }

    #[test]
    fn the_address_with_most_gives_way_however_busy_it_is() {
        let open = known(&[("10.0.0.1", 1, 90), ("10.0.0.2", 1, 1), ("10.0.0.2", 1, 2)]);
        assert_eq!(chosen(&open, "10.0.0.3"), Some(2));
        // With as many as any other, a newcomer displaces its own.
        assert_eq!(chosen(&open, "10.0.0.2"), Some(2));
        assert_eq!(chosen(&open, "10.0.0.1"), Some(0), "both would have two");
    }

    #[test]
    fn behind_one_address_the_tenant_with_most_gives_way() {
        let open = known(&[("10.0.0.1", 1, 90), ("10.0.0.1", 2, 1), ("10.0.0.1", 2, 2)]);
        assert_eq!(chosen(&open, "10.0.0.1"), Some(2));
        assert_eq!(chosen(&open, "10.0.0.9"), Some(2));
    }

    #[test]
    fn where_each_address_has_one_the_tenant_with_most_gives_way() {
        let open = known(&[("10.0.0.1", 1, 90), ("10.0.0.2", 2, 1), ("10.0.0.3", 2, 2)]);
        assert_eq!(chosen(&open, "10.0.0.4"), Some(2));
    }

    #[test]
    fn one_without_a_valid_call_goes_first_after_a_while() {
        let mut open = known(&[("10.0.0.1", 1, 90), ("10.0.0.2", 1, 1), ("10.0.0.2", 1, 2)]);
        open.extend((3..5).map(|number| EvictionCandidate {
            number,
            share: ip("10.0.0.1"),
            tenant: None,
            has_valid_call: false,
            age: GRACE,
            idle: GRACE,
        }));
        assert_eq!(chosen(&open, "10.0.0.9"), Some(3));
        for one in &mut open[3..] {
            one.age = Duration::ZERO;
        }
        // It has a moment to show what it is: here the address with as many as any displaces its
        // own, and there the tenant with most, at the address with most, is the unknown one.
        assert_eq!(chosen(&open, "10.0.0.2"), Some(2));
        assert_eq!(chosen(&open, "10.0.0.9"), Some(3));
    }

    #[test]
    fn a_network_of_ipv6_has_one_share() {
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
        assert_eq!(choose(&[], ip("10.0.0.1"), GRACE), None);
    }
}
