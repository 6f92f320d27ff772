// Fixed-width integers as bytes: big-endian in keys, little-endian in values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn {

template <typename T>
constexpr void StoreBigEndian(T value, char* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<char>(value >> (8 * (sizeof(T) - 1 - i)));
  }
}

template <typename T>
constexpr T LoadBigEndian(const char* from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(from[i]));
  }
  return value;
}

template <typename T>
constexpr void StoreLittleEndian(T value, char* to) {
  for (size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<char>(value >> (8 * i));
}

template <typename T>
constexpr T LoadLittleEndian(const char* from) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(from[i]));
  }
  return value;
}

template <typename T>
void AppendBigEndian(T value, std::string& to) {
  char bytes[sizeof(T)];
  StoreBigEndian(value, bytes);
  to.append(bytes, sizeof(T));
}

template <typename T>
void AppendLittleEndian(T value, std::string& to) {
  char bytes[sizeof(T)];
  StoreLittleEndian(value, bytes);
  to.append(bytes, sizeof(T));
}

}  // namespace cairn
