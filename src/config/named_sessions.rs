//! The sessions that the text of an exports file names, whatever else is wrong with it.
//!
//! A server may serve such a file: it read an earlier text, or reads another `exports.d` beside it.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::error::{ConfigError, Result};
use super::limits::MAX_FILE_BYTES;
use super::parameters::fixed_dir;
use super::{folder_of, read_text};
use crate::delta::postgres::SessionUrl;

/// The sessions that an exports file names itself; those of `exports.d` are not among them.
#[derive(Debug, Clone, Default)]
pub struct NamedSessions {
    /// The sessions of exports, absolute paths, with the exports' paths or names.
    pub files: Vec<(PathBuf, String)>,
    /// The directories of the sessions of templates, with the templates' paths.
    pub dirs: Vec<(PathBuf, String)>,
}

/// The sessions that `file` names, which is no symbolic link; relative paths begin at the folders
/// of the `paths` by which a server may have read it. `None` if it is no exports file: it is TOML
/// with neither exports nor templates, or a text of another kind. Touches no session.
///
/// # Errors
/// It cannot be read, or seems to be an exports file and is not one: its sessions are not known.
pub fn named_sessions(file: &Path, paths: &[&Path]) -> Result<Option<NamedSessions>> {
    let text = read_text(file, MAX_FILE_BYTES, "too long for an exports file")?;
    let of_table = |line: &str, name| {
        let rest = line.trim_start().trim_start_matches('[').trim_start();
        rest.trim_start_matches('"').starts_with(name)
    };
    let is_meant = || text.lines().any(|it| ["export", "template"].iter().any(|n| of_table(it, n)));
    let table: Table = match toml::from_str(&text) {
        Ok(table) => table,
        Err(error) if is_meant() => {
            return Err(ConfigError::of_file(file, error.message().trim()));
        }
        Err(_) => return Ok(None),
    };
    let all = |key| table.get(key).and_then(Value::as_array);
    let (exports, templates) = (all("export"), all("template"));
    if exports.is_none() && templates.is_none() {
        return Ok(None);
    }
    let folders = paths.iter().map(|path| folder_of(path)).collect::<Result<Vec<_>>>()?;
    let in_folders = |of: &dyn Fn(&Path) -> PathBuf, named: Vec<(&str, String)>| {
        let in_folder = |folder: &Path| {
            let at = |text| of(&folder.join(text).components().collect::<PathBuf>());
            named.iter().map(|(text, name)| (at(text), name.clone())).collect::<Vec<_>>()
        };
        folders.iter().flat_map(|folder| in_folder(folder)).collect()
    };
    let wrong =
        |key: &str| ConfigError::of_file(file, format!("the sessions of `{key}` are wrong"));
    let named = |key, all| of_all(all).ok_or_else(|| wrong(key));
    Ok(Some(NamedSessions {
        files: in_folders(&Path::to_owned, named("export", exports)?),
        dirs: in_folders(&fixed_dir, named("template", templates)?),
    }))
}

/// The sessions of exports or templates, with the paths or names of these; `None` if one cannot be
/// read.
fn of_all(all: Option<&Vec<Value>>) -> Option<Vec<(&str, String)>> {
    let mut named = Vec::new();
    for one in all.into_iter().flatten() {
        let one = one.as_table()?;
        let texts = ["path", "name"].into_iter().find_map(|key| one.get(key)?.as_str());
        let name = texts.unwrap_or_default();
        let mounts = match one.get("mount") {
            Some(mounts) => mounts.as_array()?,
            None => continue,
        };
        for mount in mounts {
            if let Some(session) = mount.as_table()?.get("session") {
                let session = session.as_str()?;
                if !SessionUrl::is_meant(session) {
                    named.push((session, name.to_owned()));
                }
            }
        }
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::named_sessions;
    use std::path::PathBuf;

    #[test]
    fn the_sessions_of_a_text_with_faults_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("e.toml");
        let named = |text: &str| {
            std::fs::write(&file, text).unwrap();
            named_sessions(&file, &[&file, "/srv/e.toml".as_ref()])
        };
        let found = named(
            "[[export]]\nno_such_key = 1\npath = \"/a\"\n\
             [[export.mount]]\nsession = \"./\\u0061\"\n\
             [[template]]\npath = \"/t/{x}\"\n[[template.mount]]\nsession = \"t/{x}.db\"\n",
        );
        let found = found.unwrap().unwrap();
        let both = |name: &str| [dir.path().join(name), PathBuf::from("/srv").join(name)];
        assert_eq!(found.files.iter().map(|it| it.0.clone()).collect::<Vec<_>>(), both("a"));
        assert_eq!(found.dirs.iter().map(|it| it.0.clone()).collect::<Vec<_>>(), both("t"));
        assert_eq!((&*found.files[0].1, &*found.dirs[1].1), ("/a", "/t/{x}"));
        for other in ["", "a = 1", "[template]\nx = 1", "[package]\nexport = true", "no toml"] {
            assert!(named(other).unwrap().is_none(), "{other}");
        }
        for unknown in [
            "[[export]]\nmount = 1",
            "export = [1]",
            "[[export]]\n[[export.mount]]\nsession = 1",
            "[[export]]\npath = ",
            "x = \n[[ template ]]",
        ] {
            assert!(named(unknown).is_err(), "{unknown}");
        }
    }
}
