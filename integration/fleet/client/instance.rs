//! One export, its files, and what is known of their contents.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::OF_A_USER;
use super::calls::status;
use super::nfs::{Client, Handle, Stability};
use super::random::Random;
use super::rpc::{Error, Result};

/// Files of the base; the others are made.
const BASE_FILES: [&str; 2] = ["base-0", "base-1"];

/// Names of files in the export's own session.
const OWN_FILES: [&str; 6] = ["base-0", "base-1", "a", "b", "c", "d"];

/// Number of files in the session that the exports of a user share, for each export.
const SHARED_FILES: usize = 3;

/// The directory of that session.
const SHARED_DIR: &str = ".user";

/// Bytes of every file: a WRITE replaces the whole content.
const FILE_BYTES: usize = 3000;

const NOENT: u32 = 2;

/// An export.
pub struct Instance {
    pub path: String,
    pub root: Option<Handle>,
    shared: Option<Handle>,
    files: BTreeMap<String, File>,
    index: usize,
}

/// A file.
#[derive(Default)]
struct File {
    handle: Option<Handle>,
    /// The number of the content that was acknowledged last; none if no content was.
    acknowledged: Option<u64>,
    /// Contents that were sent since then without an answer.
    sent: Vec<u64>,
}

/// The content with a number; 0 is that of the base.
fn content(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut bytes = Vec::with_capacity(FILE_BYTES + 8);
    while bytes.len() < FILE_BYTES {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(FILE_BYTES);
    bytes
}

/// Makes the base.
pub fn make_base(dir: &Path) -> Result<()> {
    for name in BASE_FILES {
        fs::write(dir.join(name), content(0))?;
    }
    Ok(())
}

impl Instance {
    /// The export with this number, which does not exist yet.
    pub fn new(index: usize) -> Self {
        let path = format!("/chat/u{}/c{index}", index / OF_A_USER);
        let in_base = || File { acknowledged: Some(0), ..File::default() };
        let files = BASE_FILES.iter().map(|name| ((*name).to_owned(), in_base())).collect();
        Self { path, root: None, shared: None, files, index }
    }

    /// An export that nothing shares, has no base and expires. It does not exist yet, or no more.
    pub fn expiring(index: usize) -> Self {
        let path = format!("/guest/g{index}");
        Self { path, root: None, shared: None, files: BTreeMap::new(), index }
    }

    /// It was removed, and is a new one.
    pub fn forget(&mut self) {
        self.files.clear();
    }

    /// The name of one of its files.
    pub fn any_file(&self, random: &mut Random) -> String {
        if random.below(3) > 0 {
            return (*random.pick(&OWN_FILES)).to_owned();
        }
        // No other export has this file.
        format!("{SHARED_DIR}/{}-{}", self.index, random.below(SHARED_FILES))
    }

    /// The names of files that were ever written, and of those in the base.
    pub fn all_files(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// Sends new content; until `written` it may be there or not.
    pub fn sends(&mut self, name: &str, number: u64) {
        self.files.entry(name.to_owned()).or_default().sent.push(number);
    }

    /// Writes the content that was sent last, until it is acknowledged. May be repeated.
    pub fn write(&mut self, client: &mut Client, name: &str, is_stable: bool) -> Result<()> {
        let (dir, short) = self.place(client, name)?;
        let file = self.files.get_mut(name).ok_or("no such file")?;
        let number = *file.sent.last().ok_or("nothing was sent")?;
        let handle = match &file.handle {
            Some(handle) => handle.clone(),
            None => client.create(&dir, short)?,
        };
        let stability = if is_stable { Stability::FileSync } else { Stability::Unstable };
        let written = client.write(&handle, 0, &content(number), stability)?;
        client.commit(&handle, written)?;
        *file = File { handle: Some(handle), acknowledged: Some(number), sent: Vec::new() };
        Ok(())
    }

    /// Checks what a file has, by its name and by the handle that was known.
    pub fn check(&mut self, client: &mut Client, name: &str) -> Result<()> {
        let (dir, short) = self.place(client, name)?;
        let lost = |what: &str| Error::from(format!("{}: {name}: {what}", self.path));
        let Some(file) = self.files.get(name) else { return Ok(()) };
        let found = match client.lookup(&dir, short) {
            Ok((handle, _)) => handle,
            Err(error) if status(&error) == Some(NOENT) => {
                let is_there = file.acknowledged.is_some();
                return if is_there { Err(lost("the file is lost")) } else { Ok(()) };
            }
            Err(error) => return Err(error),
        };
        for handle in [Some(&found), file.handle.as_ref()].into_iter().flatten() {
            let bytes = client.mode_and_content(handle)?.1;
            // Where nothing was acknowledged, the CREATE may have been made alone.
            let is_new = file.acknowledged.is_none() && bytes.is_empty();
            let mut possible = file.acknowledged.iter().chain(&file.sent);
            if !is_new && !possible.any(|number| content(*number) == bytes) {
                return Err(lost("the content is not what was acknowledged"));
            }
        }
        Ok(())
    }

    /// Checks the names of the root directory.
    pub fn list(&self, client: &mut Client) -> Result<()> {
        let names = client.names(self.root.as_ref().ok_or("it is not mounted")?)?;
        let own = self.files.iter().filter(|(name, _)| !name.contains('/'));
        for (name, _) in own.filter(|(_, file)| file.acknowledged.is_some()) {
            if !names.contains(name) {
                return Err(format!("{}: {name} is not listed", self.path).into());
            }
        }
        Ok(())
    }

    /// The directory of a file, and its name there.
    fn place<'a>(&mut self, client: &mut Client, name: &'a str) -> Result<(Handle, &'a str)> {
        let root = self.root.clone().ok_or("it is not mounted")?;
        let Some((dir, short)) = name.split_once('/') else { return Ok((root, name)) };
        if self.shared.is_none() {
            self.shared = Some(client.lookup(&root, dir)?.0);
        }
        Ok((self.shared.clone().unwrap_or_default(), short))
    }
}
