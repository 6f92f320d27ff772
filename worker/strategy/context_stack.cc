#include "worker/strategy/context_stack.h"

#include "worker/strategy/strategy.h"

namespace cairn {

ContextStack& ContextStack::OfThisThread() {
  thread_local ContextStack stack;
  stack.DropEnded();
  return stack;
}

std::shared_ptr<ScopeEntry> ContextStack::Enter(Strategy& strategy) {
  auto entry = std::make_shared<ScopeEntry>(&strategy);
  if (const std::optional<Device> device = strategy.DefaultDevice()) {
    devices.push_back({*device, std::shared_ptr<const std::atomic<bool>>(entry, &entry->left)});
  }
  modes.push_back({&strategy, nullptr, entry});
  return entry;
}

void ContextStack::DropEnded() {
  while (!modes.empty() && modes.back().scope != nullptr && modes.back().scope->is_over()) {
    PopTo(modes.size() - 1);
  }
  while (!devices.empty() && *devices.back().left) devices.pop_back();
  while (!creators.empty() && *creators.back().left) creators.pop_back();
}

void ContextStack::PopTo(size_t depth) {
  while (modes.size() > depth) {
    if (modes.back().scope != nullptr) modes.back().scope->left = true;
    modes.pop_back();
  }
}

}  // namespace cairn
