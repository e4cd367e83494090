//! Which rows each batch has changed, as the table `change` has it: a JSON object with the ids of
//! rows by the names of their tables, such as `{"fs_inode":[1,12],"fs_dentry":[7]}`. Whether a row
//! was written or deleted, its table says.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::delta::sqlite::{SessionTable, TableRows, session_tables};
use crate::delta::{Result, StoreError};

/// The rows of a batch.
pub(super) fn changed_rows(rows: &[TableRows]) -> String {
    let ids = rows.iter().map(|rows| {
        let ids: Vec<i64> = rows.ids.iter().chain(&rows.gone).copied().collect();
        (rows.table.name.as_str(), ids)
    });
    // A map of numbers always is JSON.
    serde_json::to_string(&ids.collect::<BTreeMap<_, _>>()).unwrap_or_default()
}

/// The rows that some batches have changed, by table.
#[derive(Debug, Default)]
pub(super) struct RowsToFollow {
    tables: BTreeMap<usize, BTreeSet<i64>>,
}

impl RowsToFollow {
    /// Adds those of a batch.
    ///
    /// # Errors
    /// It is not what [`changed_rows`] writes, or has a table that this version does not know.
    pub(super) fn add(&mut self, changed: &str) -> Result<()> {
        let read: serde_json::Result<HashMap<String, Vec<i64>>> = serde_json::from_str(changed);
        let invalid = || StoreError::corrupt("a row of the table change");
        for (name, ids) in read.map_err(|_| invalid())? {
            let table = session_tables().iter().position(|table| table.name == name);
            self.tables.entry(table.ok_or_else(invalid)?).or_default().extend(ids);
        }
        Ok(())
    }

    /// The number of rows.
    pub(super) fn count(&self) -> usize {
        self.tables.values().map(BTreeSet::len).sum()
    }

    /// The ids by table, without tables that no replica has.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static SessionTable, &BTreeSet<i64>)> {
        let known =
            self.tables.iter().filter_map(|(at, ids)| Some((session_tables().get(*at)?, ids)));
        known.filter(|(table, _)| !table.is_outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_batches_are_united_by_table() {
        let table = |name: &str| session_tables().iter().find(|table| table.name == name).unwrap();
        let mut inodes = TableRows::new(table("fs_inode"));
        (inodes.ids, inodes.gone) = (vec![3, 5], vec![4]);
        let mut names = TableRows::new(table("fs_dentry"));
        names.gone = vec![-1];
        let text = changed_rows(&[inodes, names]);
        assert_eq!(text, r#"{"fs_dentry":[-1],"fs_inode":[3,5,4]}"#);
        let mut all = RowsToFollow::default();
        all.add(&text).unwrap();
        all.add(r#"{"fs_inode":[5,6],"kv_store":[1]}"#).unwrap();
        assert_eq!(all.count(), 6);
        let shown: Vec<_> = all.iter().map(|(table, ids)| (&*table.name, ids.clone())).collect();
        let expected = [("fs_dentry", vec![-1]), ("fs_inode", vec![3, 4, 5, 6])];
        assert_eq!(shown, expected.map(|(name, ids)| (name, ids.into_iter().collect())));
        for bad in ["", "[]", r#"{"fs_inode":["1"]}"#, r#"{"not_a_table":[1]}"#] {
            assert!(all.add(bad).is_err(), "{bad}");
        }
    }
}
