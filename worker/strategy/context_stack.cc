#include "worker/strategy/context_stack.h"

namespace cairn {

ContextStack& ContextStack::OfThisThread() {
  thread_local ContextStack stack;
  stack.DropEnded();
  return stack;
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
