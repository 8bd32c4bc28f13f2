//! Addresses: a global rank and one of its endpoints.
//!
//! An address does not contain the rank's node, because MPI keeps addresses for a whole run while a rank may
//! be restored on another node. The present location is looked up in the segment at every send.

/// Size of an address as libfabric's callers see it.
pub(crate) const ADDRESS_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) rank: u32,
    pub(crate) endpoint: u16,
}

impl Address {
    pub(crate) fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4..].copy_from_slice(&u32::from(self.endpoint).to_le_bytes());
        bytes
    }

    /// `None` for bytes that are no address.
    pub(crate) fn from_bytes(bytes: [u8; ADDRESS_BYTES]) -> Option<Address> {
        let value = u64::from_le_bytes(bytes);
        let endpoint = u16::try_from(value >> 32).ok()?;
        Some(Address { rank: value as u32, endpoint })
    }
}

/// The address vector: maps the numbers that callers use to addresses.
#[derive(Debug, Default)]
pub(crate) struct AddressTable {
    entries: Vec<Option<Address>>,
}

impl AddressTable {
    pub(crate) fn insert(&mut self, address: Address) -> u64 {
        self.entries.push(Some(address));
        self.entries.len() as u64 - 1
    }

    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.entries.get_mut(number as usize).and_then(Option::take).is_some()
    }

    pub(crate) fn get(&self, number: u64) -> Option<Address> {
        *self.entries.get(number as usize)?
    }

    /// The number of an address. Linear, but used only for callers that ask for the source of every message.
    pub(crate) fn number_of(&self, address: Address) -> Option<u64> {
        self.entries.iter().position(|&entry| entry == Some(address)).map(|number| number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_unchanged_after_encoding_and_decoding() {
        let address = Address { rank: 70_000, endpoint: 3 };
        assert_eq!(Address::from_bytes(address.to_bytes()), Some(address));
        assert_eq!(Address::from_bytes([0xff; 8]), None);
    }

    #[test]
    fn numbers_stay_valid_when_other_entries_are_removed() {
        let mut table = AddressTable::default();
        let addresses = [0, 1, 2].map(|rank| Address { rank, endpoint: 0 });
        let numbers = addresses.map(|address| table.insert(address));
        assert!(table.remove(numbers[1]));
        assert!(!table.remove(numbers[1]) && !table.remove(99));
        assert_eq!(table.get(numbers[2]), Some(addresses[2]));
        assert_eq!(table.number_of(addresses[2]), Some(numbers[2]));
        assert_eq!(table.number_of(addresses[1]), None);
    }
}
