//! Which rows of the audit log are read.

use std::net::{IpAddr, SocketAddr};

use rusqlite::types::Value;

use crate::delta::AuditProcedure;
use crate::vfs::Time;

/// Selects rows: a row must meet every condition.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Not before this time.
    pub since: Option<Time>,
    /// Before this time.
    pub until: Option<Time>,
    /// With one of these procedures; empty for any.
    pub procedures: Vec<AuditProcedure>,
    /// By this caller's uid.
    pub uid: Option<u32>,
    /// From this client.
    pub client: Option<ChangeSource>,
    /// Through the export with this name, with any token.
    pub export: Option<String>,
    /// After the row with this id.
    pub after: Option<i64>,
    /// Not after the row with this id.
    pub upto: Option<i64>,
}

/// The client that made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeSource {
    /// An address, with any port.
    Machine(IpAddr),
    /// One connection: address and port.
    Socket(SocketAddr),
}

impl AuditFilter {
    /// The filter as SQL conditions, to be appended to others, with their parameters.
    pub(super) fn to_sql(&self, export_column: &str) -> (String, Vec<Value>) {
        let (mut sql, mut values) = (String::new(), Vec::new());
        for (sign, moment) in [(">=", self.since), ("<", self.until)] {
            if let Some(moment) = moment {
                sql.push_str(&format!(" AND (time, time_nsec) {sign} (?, ?)"));
                values.extend([Value::Integer(moment.secs), Value::Integer(moment.nanos.into())]);
            }
        }
        for (sign, id) in [(">", self.after), ("<=", self.upto)] {
            if let Some(id) = id {
                sql.push_str(&format!(" AND id {sign} ?"));
                values.push(Value::Integer(id));
            }
        }
        if !self.procedures.is_empty() {
            let marks = vec!["?"; self.procedures.len()].join(", ");
            sql.push_str(&format!(" AND procedure IN ({marks})"));
            values.extend(self.procedures.iter().map(|p| Value::Text(p.as_str().to_owned())));
        }
        if let Some(uid) = self.uid {
            sql.push_str(" AND uid = ?");
            values.push(Value::Integer(uid.into()));
        }
        if let Some(client) = self.client {
            let texts = client.as_stored();
            let condition = match client {
                ChangeSource::Machine(_) => "instr(client, ?) = 1",
                ChangeSource::Socket(_) => "client = ?",
            };
            sql.push_str(&format!(" AND ({})", vec![condition; texts.len()].join(" OR ")));
            values.extend(texts.into_iter().map(Value::Text));
        }
        if let Some(export) = &self.export {
            // The name may be followed by the mark of a token.
            sql.push_str(&format!(" AND ({export_column} = ? OR instr({export_column}, ?) = 1)"));
            values.extend([export.clone(), format!("{export}#")].map(Value::Text));
        }
        (sql, values)
    }
}

impl ChangeSource {
    /// How the `client` column of such rows begins. An IPv4 address may be stored as IPv4-mapped
    /// IPv6.
    fn as_stored(self) -> Vec<String> {
        let both = |ip: IpAddr| match ip.to_canonical() {
            IpAddr::V4(four) => vec![IpAddr::V4(four), IpAddr::V6(four.to_ipv6_mapped())],
            six @ IpAddr::V6(_) => vec![six],
        };
        match self {
            Self::Machine(ip) => both(ip)
                .into_iter()
                .map(|ip| if ip.is_ipv6() { format!("[{ip}]:") } else { format!("{ip}:") })
                .collect(),
            Self::Socket(address) => both(address.ip())
                .into_iter()
                .map(|ip| SocketAddr::new(ip, address.port()).to_string())
                .collect(),
        }
    }
}
