//! The session as a SQLite file in the AgentFS 0.4 format: the only place with SQL.
