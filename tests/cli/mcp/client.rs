//! A client of `acetate mcp` that writes and reads its lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::cli::program::{Serving, acetate, said};
use crate::support::world::World;

/// The program with its pipes.
pub struct McpClient {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last_id: u64,
}

impl McpClient {
    /// Starts the program with `args`, and shakes hands.
    pub fn start(directory: &Path, args: &[&str]) -> Self {
        let mut client = Self::unconnected(directory, args);
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "acetate", "{answer}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    /// Starts the program.
    pub fn unconnected(directory: &Path, args: &[&str]) -> Self {
        let mut command = acetate(directory, &["mcp"]);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { to: child.stdin.take(), from, child, last_id: 0 }
    }

    /// Writes a message.
    pub fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Writes a line.
    pub fn send_line(&mut self, line: &str) {
        let to = self.to.as_mut().unwrap();
        to.write_all(line.as_bytes()).unwrap();
        to.write_all(b"\n").unwrap();
        to.flush().unwrap();
    }

    /// Reads a message; `None` at the end.
    pub fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Sends a request, and returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Sends a request, and returns the whole answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool, and returns its result.
    #[track_caller]
    pub fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let mut answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{tool} {arguments}: {answer}");
        answer["result"].take()
    }

    /// Calls a tool that returns an object.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.result(tool, &arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let object: Value = serde_json::from_str(text).unwrap();
        assert_eq!(object, result["structuredContent"], "{tool}");
        result["structuredContent"].take()
    }

    /// Calls a tool that returns texts.
    #[track_caller]
    pub fn texts(&mut self, tool: &str, arguments: Value) -> Vec<String> {
        let result = self.result(tool, &arguments);
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        assert!(result.get("structuredContent").is_none());
        let texts = result["content"].as_array().unwrap().iter();
        texts.map(|block| block["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool that fails; returns what it says.
    #[track_caller]
    pub fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.result(tool, &arguments);
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The names of the tools.
    pub fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The number of the process.
    pub fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends the input.
    pub fn close(&mut self) {
        self.to = None;
    }

    /// Ends the input, and returns the messages that were not read, the exit code and stderr.
    pub fn end(mut self) -> (Vec<Value>, Option<i32>, String) {
        self.close();
        let rest = std::iter::from_fn(|| self.receive()).collect();
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (rest, self.child.wait().unwrap().code(), told)
    }

    /// Ends the input of a client that has read all answers.
    #[track_caller]
    pub fn ends_well(self) {
        assert_eq!(self.end(), (Vec::new(), Some(0), String::new()));
    }
}

/// A session, served or at rest, for the clients of a test.
pub struct McpPlace {
    pub world: World,
    server: Option<Serving>,
}

impl McpPlace {
    pub fn new(base: &str, is_served: bool) -> Self {
        let mut world = World::new(base);
        world.close();
        let mut place = Self { world, server: None };
        if is_served {
            place.serve();
        }
        place
    }

    /// Starts a server of the session.
    pub fn serve(&mut self) {
        let session = self.world.session();
        let args = [session.to_str().unwrap()];
        self.server = Some(Serving::start(self.world.scratch(), 1, &args));
    }

    /// Stops it, if there is one.
    pub fn stop_serving(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
    }

    /// A client of the session, which may change it.
    pub fn client(&self) -> McpClient {
        self.client_with(&["--allow-changes"])
    }

    /// A client of the session with these options.
    pub fn client_with(&self, options: &[&str]) -> McpClient {
        let session = self.world.session();
        let mut args = vec![session.to_str().unwrap()];
        args.extend(options);
        McpClient::start(self.world.scratch(), &args)
    }

    /// What a command prints that ends with 0. SESSION is the session.
    #[track_caller]
    pub fn says(&self, words: &str) -> String {
        let session = self.world.session();
        let words = words.split_whitespace().map(|word| match word {
            "SESSION" => session.to_str().unwrap(),
            word => word,
        });
        let args: Vec<_> = words.collect();
        said(&acetate(self.world.scratch(), &args).output().unwrap(), 0).0
    }

    /// Name, status, parameters and error of each tool call.
    pub fn calls(&self) -> Vec<(String, String, Value, Value)> {
        let listed = self.says("tool ls SESSION --json");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let row = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            let (parameters, error) = (row["parameters"].clone(), row["error"].clone());
            (text(&row["name"]), text(&row["status"]), parameters, error)
        };
        listed.lines().map(row).collect()
    }

    /// The checkpoints: kind, and the tool of the label.
    pub fn checkpoints(&self) -> Vec<(String, Value)> {
        let listed = self.says("checkpoint ls SESSION --json");
        let row = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["kind"].as_str().unwrap().to_owned(), row["labels"]["tool"].clone())
        };
        listed.lines().map(row).collect()
    }

    /// Ends the server; the session is sound.
    #[track_caller]
    pub fn end(mut self) {
        self.stop_serving();
        assert!(self.says("check SESSION").ends_with(": sound\n"));
        self.world.open_again();
    }
}
