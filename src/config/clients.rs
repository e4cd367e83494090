//! Which clients may mount: addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::error::Result;
use super::limits::MAX_CLIENTS;
use super::written::SourceText;

/// Prefix length of 127.0.0.0/8.
const LOOPBACK_BITS: u8 = 8;

/// Networks; a single address is a network of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientNetworks(Vec<IpNet>);

impl ClientNetworks {
    /// Loopback only: the default.
    pub fn loopback() -> Self {
        let v4 = Ipv4Net::new(Ipv4Addr::LOCALHOST, LOOPBACK_BITS).map(|net| net.trunc().into());
        let v6 = IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST));
        Self(v4.into_iter().chain([v6]).collect())
    }

    /// Whether `address` is in a network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }

    /// Whether other hosts are included.
    pub fn are_beyond_loopback(&self) -> bool {
        self.0.iter().any(|net| match net {
            IpNet::V4(net) => net.prefix_len() < LOOPBACK_BITS || !net.addr().is_loopback(),
            IpNet::V6(net) => net.prefix_len() < 128 || !net.addr().is_loopback(),
        })
    }

    /// Whether all IPv4 or all IPv6 addresses are included.
    pub fn are_all(&self) -> bool {
        self.0.iter().any(|net| net.prefix_len() == 0)
    }

    /// The networks.
    pub fn networks(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter()
    }
}

/// Checks `clients`.
pub(super) fn check(
    source: &SourceText<'_>,
    written: &Spanned<Vec<Spanned<String>>>,
) -> Result<ClientNetworks> {
    let all = written.get_ref();
    source.at_most("addresses and networks in `clients`", all, MAX_CLIENTS)?;
    if all.is_empty() {
        let hint = "leave `clients` out for this machine alone, or name addresses and networks";
        return Err(source.wrong(&written.span(), "no client could mount this").with_hint(hint));
    }
    let mut networks = Vec::with_capacity(all.len());
    for client in all {
        networks.extend(parse(client.get_ref()).ok_or_else(|| {
            let what =
                format!("'{}' is not an address or a network", client.get_ref().escape_debug());
            let hint = "such as 10.0.0.7, 10.0.0.0/24, ::1, fd00::/8, or '*' for everybody; \
                names are not looked up";
            source.wrong(&client.span(), what).with_hint(hint)
        })?);
    }
    Ok(ClientNetworks(networks))
}

/// Parses one element; `*` means all IPv4 and IPv6 addresses.
fn parse(text: &str) -> Option<Vec<IpNet>> {
    if text == "*" {
        return Some(vec![Ipv4Net::default().into(), Ipv6Net::default().into()]);
    }
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => text.parse::<IpAddr>().ok()?.into(),
    };
    // IPv4-mapped networks are stored as IPv4, as addresses are compared.
    if let IpNet::V6(v6) = net
        && let Some(v4) = v6.addr().to_ipv4_mapped()
    {
        let bits = v6.prefix_len().checked_sub(96)?;
        return Some(vec![Ipv4Net::new(v4, bits).ok()?.trunc().into()]);
    }
    Some(vec![net.trunc()])
}
