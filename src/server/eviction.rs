//! Selects the connection to close when all are taken and another client connects.
//!
//! The address with the most connections loses one, busy or not, and there the tenant with the
//! most. A client whose address already has as many as any other displaces a connection of its own
//! address. No address takes connections from one that has fewer, and an address without any always
//! gets one. Clients behind one address (NAT, containers, loopback) are distinguished by tenant:
//! the number that a program derives from their calls.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::time::Duration;

/// Prefix length that identifies an IPv6 client: one client has all addresses of its /64.
const IPV6_PREFIX_BITS: u32 = 64;

/// The properties of an open connection that decide about eviction.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionCandidate {
    /// Connections opened later have higher numbers.
    pub(super) number: u64,
    /// The address prefix, from [`share_of`].
    pub(super) share: IpAddr,
    pub(super) tenant: Option<NonZeroU64>,
    /// Whether a valid call was answered.
    pub(super) has_valid_call: bool,
    /// The time since the connection was opened.
    pub(super) age: Duration,
    /// The time since the last call, or since the connection was opened.
    pub(super) idle: Duration,
}

/// The prefix of an address that counts as one client: all of IPv4, /64 of IPv6.
pub(super) fn share_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::MAX << (u128::BITS - IPV6_PREFIX_BITS);
            Ipv6Addr::from_bits(address.to_bits() & network).into()
        }
        address => address,
    }
}

/// Selects the connection to close so that a client from address prefix `newcomer` can connect.
/// Returns its number, or `None` if `open` is empty. The rules, in this order:
///
/// 1. the oldest connection without a valid call for `grace`
/// 2. only connections of the address with the most, if that has more than `newcomer` will have;
///    otherwise only those of `newcomer`, or all if it has none
/// 3. of these, only connections of the tenant with the most
/// 4. of these, the oldest one without a valid call, or else the one that is idle for longest
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

    /// Connections with valid calls, in the order of opening: address, tenant, seconds idle.
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
        // With as many as any other, a new client displaces a connection of its own address.
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
        // Within the grace period the usual rules apply: an address with as many as any other
        // displaces its own, and at the address with the most, the largest tenant is the unknown
        // one.
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
