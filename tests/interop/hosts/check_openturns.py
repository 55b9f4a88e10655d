"""KITT's functions inside OpenTURNS: validation, gradients, sensitivity, reliability."""

import warnings

import numpy as np
import openturns as ot
import torch
from openturns.usecases import ishigami_function

import kitt
from kitt.interop.openturns import metamodel


def main() -> None:
    ot.RandomGenerator.SetSeed(0)
    case = ishigami_function.IshigamiModel()
    X = case.inputDistribution.getSample(120)
    Y = case.model(X)
    fitted = kitt.suggest(np.asarray(X), np.asarray(Y)[:, 0], fit=True, effort="quick").fitted
    mean, std = metamodel(fitted)

    test = case.inputDistribution.getSample(300)
    validation = ot.MetaModelValidation(case.model(test), mean(test))
    print("R2 of 300 other points:", validation.computeR2Score())
    assert validation.computeR2Score()[0] > 0.9
    point = test[0]
    assert abs(mean(point)[0] - mean(test)[0][0]) < 1e-9
    assert (np.asarray(std(test)) > 0).all()

    for function in (mean, std):
        exact = np.asarray(function.gradient(point))
        differences = ot.CenteredFiniteDifferenceGradient(1e-3, function.getEvaluation()).gradient(point)
        np.testing.assert_allclose(exact, np.asarray(differences), rtol=1e-2, atol=1e-3)

    sobol = ot.SobolIndicesExperiment(case.inputDistribution, 512).generate()
    indices = ot.SaltelliSensitivityAlgorithm(sobol, mean(sobol), 512).getTotalOrderIndices()
    print("total Sobol indices:", indices, "known:", [case.ST1, case.ST2, case.ST3])
    np.testing.assert_allclose(indices, [case.ST1, case.ST2, case.ST3], atol=0.15)

    output = ot.CompositeRandomVector(mean, ot.RandomVector(case.inputDistribution))
    event = ot.ThresholdEvent(output, ot.Greater(), 10.0)
    known = ot.ThresholdEvent(ot.CompositeRandomVector(case.model, output.getAntecedent()), ot.Greater(), 10.0)
    found = []
    for each in (event, known):
        ot.RandomGenerator.SetSeed(0)
        simulation = ot.ProbabilitySimulationAlgorithm(each, ot.MonteCarloExperiment())
        simulation.setMaximumOuterSampling(20)
        simulation.setBlockSize(200)
        simulation.run()
        found.append(simulation.getResult().getProbabilityEstimate())
    print("probability of more than 10, of the model and of the function itself:", *found)
    assert abs(found[0] - found[1]) < 0.005
    print("all checks passed")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
