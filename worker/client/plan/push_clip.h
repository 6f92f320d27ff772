// Clips gradients by their norm (Keras' clipnorm) where no server has the whole variable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/key_index.h"
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// What replaces the ids and values of a push.
struct ClippedPush {
  std::vector<int64_t> ids;  // each once
  std::vector<std::byte> values;
};

// Whether the client must clip: the optimizer has a clipnorm, and the variable has several groups.
// A server clips the variables that it holds whole.
bool NeedsClipping(const ClientVariable& variable);
// Sums the gradients of repeated ids, then scales all so that their norm is at most clipnorm.
// `source` fits the variable. `index`: scratch memory.
ClippedPush ClipPush(const VariableSpec& spec, const PushSource& source, KeyIndex& index);

}  // namespace cairn
