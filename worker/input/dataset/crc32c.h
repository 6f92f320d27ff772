// CRC-32C (Castagnoli; RFC 3720, appendix B.4), and the form in which TFRecord files store it.
// Debian 12 packages no library of it, and Abseil has it from 2023 on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// Of `size` bytes; the processor's instruction where it has one.
uint32_t Crc32c(const void* data, size_t size);
// The same by tables alone.
uint32_t Crc32cByTables(const void* data, size_t size);

// TFRecord's mask: a checksum of bytes that hold checksums would be a weak one.
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace cairn
