//! What a failing disk costs.
