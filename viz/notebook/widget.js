// The widget's entry. It stands below the page's own scripts, with `mount` in its scope.

export default {
  async render({ model, el }) {
    const app = await mount(el, model.get("_data"));
    app.goToStep(model.get("step"));
    app.onStep = (step) => {
      model.set("step", step);
      model.save_changes();
    };
    const follow = () => {
      if (model.get("step") !== app.session.run.frames.step[app.session.frame]) app.goToStep(model.get("step"));
    };
    model.on("change:step", follow);
    return () => {
      model.off("change:step", follow);
      app.destroy();
    };
  },
};
