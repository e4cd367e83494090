//! The HTTP listener of `serve --admin`: figures for Prometheus, whether the server is healthy, and
//! its exports.
//!
//! It knows neither the server nor sessions: what it shows comes from a [`FigureSource`], a
//! [`HealthSource`] and an [`ExportsSource`]. Only the last one shows secrets, to clients with the
//! token: elsewhere labels are names of the program's own, and names of exports.
//!
//! | Path | Answer |
//! |---|---|
//! | `/metrics` | the figures of [`metrics::ALL`], in OpenMetrics' text format |
//! | `/healthz` | 200, or 503 with a reason if the process has to be restarted |
//! | `/readyz` | 200, or 503 with a reason if clients are not served |
//! | `/exports` | lists and changes exports, with a token |

mod answer;
mod door;
mod exports;
pub mod limits;
pub mod metrics;
mod process;
mod samples;
mod token;

use std::future::Future;
use std::pin::Pin;

pub use door::AdminDoor;
pub use exports::{ExportsCall, ExportsReply, ExportsSite, ExportsSource, Replying};
pub use process::ProcessFigures;
pub use samples::Samples;
pub use token::AdminToken;

/// Figures that are being collected.
pub type Collecting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Something that has figures.
pub trait FigureSource: Send + Sync + 'static {
    /// Adds the current figures. Must not wait long for a session or a base.
    fn collect<'a>(&'a self, samples: &'a mut Samples) -> Collecting<'a>;
}

/// Something that knows whether the server is healthy. Its reasons must hold no secret.
pub trait HealthSource: Send + Sync + 'static {
    /// Why the process has to be restarted, if it has to be.
    fn fault(&self) -> Option<String>;

    /// Why clients are not served as usual, if they are not.
    fn unready(&self) -> Option<String>;
}

/// What the listener shows.
pub struct AdminSite {
    /// For `/metrics`.
    pub figures: Box<dyn FigureSource>,
    /// For `/healthz` and `/readyz`.
    pub health: Box<dyn HealthSource>,
    /// For `/exports`; `None` if they are not changed over HTTP.
    pub exports: Option<ExportsSite>,
}
