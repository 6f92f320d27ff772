#include "storage/stripe_store.h"
