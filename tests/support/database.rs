//! Sessions of tests in a PostgreSQL database, each with a replica at the session's usual path.
//!
//! With `ACETATE_TEST_DATABASE=postgres://USER@HOST:PORT/DATABASE`, the tests that take their
//! sessions from here run over the database. At each close, and when a session is dropped, all rows
//! of the replica and of the database are compared: a changed row that was not sent fails the test.

pub mod left_out;
pub mod rows;
pub mod server;
pub mod session;
