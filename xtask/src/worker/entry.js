// Entry of the Worker, like the one that worker-build generates: instantiates the module, and constructs Durable Objects anew after
// a fatal error replaced the WebAssembly instance.
import * as wasm from "./index.js";
import module from "./index_bg.wasm";

wasm.initSync({ module });
const state = wasm.__worker_init_state();

const renewed = (Class) =>
  new Proxy(Class, {
    construct(Class, args, target) {
      let id = state.instanceId;
      let object = Reflect.construct(Class, args, target);
      return new Proxy(object, {
        get(_, name) {
          if (id !== state.instanceId) {
            id = state.instanceId;
            object = Reflect.construct(Class, args, target);
          }
          const value = Reflect.get(object, name, object);
          return typeof value === "function" ? value.bind(object) : value;
        },
      });
    },
  });

export default {
  fetch: wasm.fetch,
  scheduled: wasm.scheduled,
};

export const Records = renewed(wasm.Records);
