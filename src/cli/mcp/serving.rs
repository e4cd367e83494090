//! Answers the requests of the client, until its input ends.

use std::process;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, ConstString, CustomRequest,
    CustomResult, ErrorCode, ErrorData, Implementation, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestMethod, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{RoleServer, ServerHandler, serve_server};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;

use super::limits::MAX_CALLS;
use super::resources;
use super::results::tool_result;
use super::session::McpSession;
use super::tools::nearest;
use super::transport::StdioTransport;
use crate::cli::error::CliError;
use crate::cli::{FAILED, output};
use crate::inspect::stop::StopFlag;

/// Serves a session on stdin and stdout.
///
/// A call that runs when the input ends, or a signal comes, is finished and answered.
///
/// # Errors
/// The system has no threads, or the client does not speak the protocol.
pub(super) fn serve(session: McpSession) -> Result<(), CliError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // For each call, and for stdin and stdout.
        .max_blocking_threads(MAX_CALLS + 2)
        .build()
        .map_err(|error| CliError::caused("cannot start threads", &error))?;
    let ended = runtime.block_on(async {
        let calls = Arc::new(Semaphore::new(MAX_CALLS));
        let transport = StdioTransport::new(Arc::clone(&calls), stop_at_signal()?);
        let served = match serve_server(McpServer(Arc::new(session)), transport).await {
            Ok(running) => running.waiting().await.map(drop).map_err(CliError::new),
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(CliError::new(format_args!("the client: {error}"))),
        };
        let _all_ended = calls.acquire_many(MAX_CALLS as u32).await;
        served
    });
    // stdin may block for good.
    runtime.shutdown_background();
    ended
}

/// Ends the input at the first signal that asks the process to end, and the process at the second.
fn stop_at_signal() -> Result<watch::Receiver<bool>, CliError> {
    let listen =
        |kind| signal(kind).map_err(|error| CliError::caused("cannot listen for signals", &error));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        for is_second in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if is_second {
                process::exit(FAILED.into());
            }
            output::line(format_args!("stopping; a second signal stops at once"));
            stop.send_replace(true);
        }
    });
    Ok(stopped)
}

/// The server side of the protocol.
struct McpServer(Arc<McpSession>);

impl McpServer {
    /// Runs a call in a thread that may block; a client that cancels it sets the flag.
    async fn run<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(&McpSession, &StopFlag) -> Result<T, ErrorData> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let (session, stop) = (Arc::clone(&self.0), StopFlag::default());
        let flag = stop.clone();
        let mut running = spawn_blocking(move || work(&session, &flag));
        let done = tokio::select! {
            done = &mut running => done,
            () = context.ct.cancelled() => {
                stop.stop();
                running.await
            }
        };
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "a call");
            Err(ErrorData::internal_error("the call failed: see the server's log", None))
        })
    }

    /// A client that may not call `read_file` cannot read files as resources either.
    fn has_resources(&self) -> bool {
        self.0.has("read_file")
    }

    fn require_resources<M: ConstString>(&self) -> Result<(), ErrorData> {
        match self.has_resources() {
            true => Ok(()),
            false => Err(ErrorData::method_not_found::<M>()),
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools();
        let can = match self.has_resources() {
            true => can.enable_resources().build(),
            false => can.build(),
        };
        ServerConfig::new(can)
            .with_server_info(Implementation::new("acetate", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.0.instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.0.tools().map(|tool| tool.describe());
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.run(&context, move |session, stop| {
            let Some(tool) = session.tool(&request.name) else {
                let (name, nearest) = (&request.name, nearest(&request.name).join(", "));
                let what = format!("unknown tool: {name}; did you mean {nearest}?");
                return Err(ErrorData::invalid_params(what, None));
            };
            let done = session.call(tool, request.arguments.unwrap_or_default(), stop);
            Ok(tool_result(done.map_err(|error| session.told(&error))).into())
        })
        .await
    }

    /// A request whose parameters are not those of its method arrives as one without a type.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, .. } = request;
        if [CallToolRequestMethod::VALUE, ReadResourceRequestMethod::VALUE].contains(&&*method) {
            let what = format!("{method}: its parameters are missing, or not as the protocol asks");
            return Err(ErrorData::invalid_params(what, None));
        }
        let what = format!("{method}: not a method of this server");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.require_resources::<ListResourcesRequestMethod>()?;
        let cursor = request.and_then(|request| request.cursor);
        self.run(&context, move |session, _| resources::list(session, cursor.as_deref())).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.require_resources::<ListResourceTemplatesRequestMethod>()?;
        Ok(ListResourceTemplatesResult::with_all_items(vec![resources::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.require_resources::<ReadResourceRequestMethod>()?;
        let read = self.run(&context, move |session, _| resources::read(session, &request.uri));
        read.await.map(Into::into)
    }
}
