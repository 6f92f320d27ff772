// CRC-32C (Castagnoli; RFC 3720, appendix B.4), and the masked form that TFRecord files store.
// Implemented here since Debian 12 has no library for it and Abseil has it only from 2023 on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// The CRC-32C of `size` bytes. Uses the processor's CRC instruction if available.
uint32_t Crc32c(const void* data, size_t size);
// Like Crc32c, computed from tables only.
uint32_t Crc32cByTables(const void* data, size_t size);

// TFRecord's mask: the checksum of bytes that contain their own checksum would be weak.
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace cairn
