// What the runtime calls: the bindings, made anew after a fault that ended the WebAssembly.
import * as wasm from "./index.js";

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
