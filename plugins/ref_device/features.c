/* What a fault build does to features of arguments: CHORAL_REF_IGNORE names one that it passes over, CHORAL_REF_REFUSE one that
 * it refuses. The names are those below, where operators ask. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

static int named_by(const char* variable, const char* feature) {
  const char* name = getenv(variable);
  return name != NULL && strcmp(name, feature) == 0;
}

int ref_passes_over(const char* op, const char* feature, choral_status** error) {
  if (!ref_fault.features || *error != NULL) return 0;
  if (named_by("CHORAL_REF_REFUSE", feature)) {
    *error = ref_error(CHORAL_UNSUPPORTED, "%s: %s is not served: this is a fault build", op, feature);
  }
  return named_by("CHORAL_REF_IGNORE", feature);
}
