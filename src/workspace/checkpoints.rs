//! What an exports file and the command line say about checkpoints, for the layers.

use crate::config::{CheckpointsConfig, KeepCheckpointsConfig, MountConfig, StoreConfig};
use crate::delta::CheckpointKeep;
use crate::overlay::AutomaticCheckpoints;

/// Which checkpoints a server makes.
pub fn automatic(config: CheckpointsConfig) -> AutomaticCheckpoints {
    match config {
        CheckpointsConfig::Off => AutomaticCheckpoints::OFF,
        CheckpointsConfig::Tools => AutomaticCheckpoints::default(),
        CheckpointsConfig::Idle(gap) => {
            AutomaticCheckpoints { idle: Some(gap), ..AutomaticCheckpoints::default() }
        }
    }
}

/// Which ones it makes of a mount's session. Of one in memory, none.
pub(super) fn of_mount(mount: &MountConfig) -> AutomaticCheckpoints {
    match mount.store {
        StoreConfig::Memory => AutomaticCheckpoints::OFF,
        StoreConfig::Session { .. } | StoreConfig::Database { .. } => {
            automatic(mount.checkpoints.unwrap_or_default())
        }
    }
}

/// Which automatic checkpoints a session keeps.
pub fn keep_of(config: KeepCheckpointsConfig) -> CheckpointKeep {
    let usual = CheckpointKeep::default();
    let KeepCheckpointsConfig { newest, hourly_secs, daily_secs, max_bytes } = config;
    CheckpointKeep {
        newest: newest.unwrap_or(usual.newest),
        hourly_secs: hourly_secs.unwrap_or(usual.hourly_secs),
        daily_secs: daily_secs.or(usual.daily_secs),
        max_bytes: max_bytes.or(usual.max_bytes),
    }
}
