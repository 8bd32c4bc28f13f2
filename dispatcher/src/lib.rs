//! One per application: launch, cut, dump, park, restore.
