//! The clients that have used or mounted an export since the server started.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Addresses of one export that are remembered. With more, any client may be one of them.
const MAX_CLIENTS: usize = 256;

/// The addresses of clients that have used or mounted an export, and have not unmounted it since.
#[derive(Debug, Default)]
pub struct ExportClients {
    /// [`mark`] of the client of the last call; 0 if it is to be looked up.
    last: AtomicU64,
    known: Mutex<KnownClients>,
}

#[derive(Debug, Default)]
struct KnownClients {
    addresses: Vec<IpAddr>,
    /// There were more than are remembered.
    are_too_many: bool,
}

impl ExportClients {
    /// A client uses the export.
    pub(super) fn note(&self, client: IpAddr) {
        let client = client.to_canonical();
        let mark = mark(client);
        // Mostly it is that of the call before.
        if self.last.load(Ordering::Relaxed) == mark {
            return;
        }
        let mut known = self.known.lock();
        if !known.addresses.contains(&client) {
            match known.addresses.len() {
                MAX_CLIENTS => known.are_too_many = true,
                _ => known.addresses.push(client),
            }
        }
        self.last.store(mark, Ordering::Relaxed);
    }

    /// A client unmounted the export.
    pub(super) fn forget(&self, client: IpAddr) {
        let mut known = self.known.lock();
        known.addresses.retain(|address| *address != client.to_canonical());
        self.last.store(0, Ordering::Relaxed);
    }

    /// Whether `is_connected` holds for a client that has used or mounted the export.
    pub fn any(&self, is_connected: impl Fn(IpAddr) -> bool) -> bool {
        let known = self.known.lock();
        known.are_too_many || known.addresses.iter().any(|address| is_connected(*address))
    }
}

/// A number for an address, not 0. Addresses of version 6 may have the same one: a client that
/// chooses such an address is not remembered.
fn mark(client: IpAddr) -> u64 {
    let number = match client {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let [high, low] = [64, 0].map(|shift| (address.to_bits() >> shift) as u64);
            high.rotate_left(1) ^ low
        }
    };
    number | 1 << 63
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{ExportClients, MAX_CLIENTS};

    #[test]
    fn a_client_is_one_until_it_unmounts() {
        let clients = ExportClients::default();
        let [one, other]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        clients.note(one);
        assert!(clients.any(|it| it == one) && !clients.any(|it| it == other));
        clients.note(other);
        clients.forget(other);
        assert!(clients.any(|it| it == one) && !clients.any(|it| it == other));
        clients.note(other);
        assert!(clients.any(|it| it == other));
    }

    #[test]
    fn more_than_are_remembered_may_be_any() {
        let clients = ExportClients::default();
        for number in 0..=u32::try_from(MAX_CLIENTS).unwrap() {
            assert!(!clients.any(|_| false));
            clients.note(IpAddr::V4(number.into()));
        }
        assert!(clients.any(|_| false));
    }
}
