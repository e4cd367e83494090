//! What an exports file and the command line say about checkpoints, for the layers.

use crate::config::{CheckpointsConfig, MountConfig, StoreConfig};
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
        StoreConfig::Session { .. } => automatic(mount.checkpoints.unwrap_or_default()),
    }
}
