//! A server that a service manager starts: what it tells the manager, and the sockets that it gets.

mod activation;
mod manager;
mod notifying;
mod restart;
mod watchdog;
