// What libcairn_server.so.0 exports to libcairn_client.so.0, which loads it when a program asks for
// servers in its own process. Only these two libraries of one build use it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cairn_server_options {
  const char* directory;
  const char* durability;
  int32_t index, count;
  int64_t memory_budget_bytes;  // 0: the default
  int keep_all_rows;
};

// Starts server `index` of `count` on a free port of 127.0.0.1 with its state in `directory`.
// Returns the server; null: `text` holds the error and *code its code. Otherwise `text` holds the
// address. `text` has `capacity` bytes and ends with NUL.
void* cairn_server_start(const struct cairn_server_options* options, int* code, char* text,
                         uint64_t capacity);
// Writes the server's state, stops and frees it. Returns a code, and the error in `text`.
int cairn_server_stop(void* server, char* text, uint64_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif
