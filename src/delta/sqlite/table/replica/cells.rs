//! Values of rows, column by column.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::delta::sqlite::table::value;
use crate::delta::{Result, StoreError};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// Integers.
    Int,
    /// Words and JSON: text without NUL.
    Text,
    /// Bytes that SQLite has as TEXT where they are text, and as BLOB otherwise (invariant D5).
    Name,
    /// Bytes.
    Blob,
    /// Integers and text, each as JSON.
    Any,
}

/// The values of one column in some rows, in the order of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellColumn {
    /// Of [`ColumnKind::Int`].
    Ints(Vec<Option<i64>>),
    /// Of [`ColumnKind::Text`] and [`ColumnKind::Any`].
    Texts(Vec<Option<String>>),
    /// Of [`ColumnKind::Name`] and [`ColumnKind::Blob`].
    Blobs(Vec<Option<Vec<u8>>>),
}

impl CellColumn {
    /// No values, of a kind.
    pub fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Int => Self::Ints(Vec::new()),
            ColumnKind::Text | ColumnKind::Any => Self::Texts(Vec::new()),
            ColumnKind::Name | ColumnKind::Blob => Self::Blobs(Vec::new()),
        }
    }

    /// Appends a value of a kind; returns how many bytes it takes, roughly.
    pub(super) fn push(&mut self, kind: ColumnKind, value: ValueRef<'_>) -> Result<usize> {
        let unexpected = || StoreError::corrupt("a value has not the type of its column");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| unexpected());
        match (self, kind, value) {
            (Self::Ints(values), _, ValueRef::Null) => values.push(None),
            (Self::Texts(values), _, ValueRef::Null) => values.push(None),
            (Self::Blobs(values), _, ValueRef::Null) => values.push(None),
            (Self::Ints(values), _, ValueRef::Integer(number)) => values.push(Some(number)),
            (Self::Texts(values), ColumnKind::Any, ValueRef::Integer(number)) => {
                values.push(Some(number.to_string()));
            }
            (Self::Texts(values), ColumnKind::Any, ValueRef::Text(bytes)) => {
                values.push(Some(serde_json::Value::String(text(bytes)?).to_string()));
            }
            (Self::Texts(values), ColumnKind::Text, ValueRef::Text(bytes)) => {
                values.push(Some(text(bytes)?));
            }
            (
                Self::Blobs(values),
                ColumnKind::Name,
                ValueRef::Text(bytes) | ValueRef::Blob(bytes),
            )
            | (Self::Blobs(values), ColumnKind::Blob, ValueRef::Blob(bytes)) => {
                values.push(Some(bytes.to_vec()));
            }
            _ => return Err(unexpected()),
        }
        Ok(match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        })
    }

    /// The value of row `at`, as SQLite stores it.
    pub(super) fn get(&self, kind: ColumnKind, at: usize) -> Result<ToSqlOutput<'_>> {
        let null = ToSqlOutput::Owned(Value::Null);
        let missing = || StoreError::corrupt("a column has fewer values than another");
        Ok(match self {
            Self::Ints(values) => {
                let number = values.get(at).ok_or_else(missing)?;
                number.map_or(null, |number| ToSqlOutput::Owned(Value::Integer(number)))
            }
            Self::Texts(values) => match (values.get(at).ok_or_else(missing)?, kind) {
                (None, _) => null,
                (Some(text), ColumnKind::Any) => ToSqlOutput::Owned(of_json(text)?),
                (Some(text), _) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            },
            Self::Blobs(values) => match (values.get(at).ok_or_else(missing)?, kind) {
                (None, _) => null,
                (Some(bytes), ColumnKind::Name) => {
                    let [ours, _] = value::keys(bytes);
                    ours
                }
                (Some(bytes), _) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            },
        })
    }
}

fn of_json(text: &str) -> Result<Value> {
    let unexpected = || StoreError::corrupt("a value is neither a JSON number nor a string");
    match serde_json::from_str(text) {
        Ok(serde_json::Value::String(text)) => Ok(Value::Text(text)),
        Ok(serde_json::Value::Number(number)) => {
            number.as_i64().map(Value::Integer).ok_or_else(unexpected)
        }
        _ => Err(unexpected()),
    }
}
