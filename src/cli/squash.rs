//! Whether a server of one session squashes the clients' root.

use std::net::SocketAddr;

/// `--root-squash` and `--no-root-squash`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct RootSquash {
    /// Map the clients' root to user 65534 [default beyond loopback].
    #[arg(long, conflicts_with = "no_root_squash")]
    root_squash: bool,

    /// Keep the clients' root as root [default on loopback].
    #[arg(long)]
    no_root_squash: bool,
}

impl RootSquash {
    /// Whether a server that listens at `addresses` squashes root.
    pub(super) fn applies_at(self, addresses: &[SocketAddr]) -> bool {
        self.root_squash || (!self.no_root_squash && addresses.iter().any(is_beyond_loopback))
    }

    /// Whether root is squashed, if an option is given.
    pub(super) fn given(self) -> Option<bool> {
        (self.root_squash || self.no_root_squash).then_some(self.root_squash)
    }
}

/// Whether other machines can reach an address.
pub(super) fn is_beyond_loopback(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}
